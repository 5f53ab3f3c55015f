// Package client uses a deployment as users do, through its public REST API and
// sockets: for the load test, the end-to-end tests and command lines.
//
// A [User] gets grants and makes requests. [Watch] starts a [Viewer] of a
// terminal, which reconnects by itself. The parts without clock and connection
// stand apart: parser (WebSocket frames), outbox (unacknowledged input), acks
// (when to acknowledge output), relays (where to connect next) and pulse
// (whether a relay is silent).
package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A StatusError is an answer with an unexpected status.
type StatusError struct {
	What   string // the request
	Status int
	Body   string // its beginning
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.What, e.Status, strings.TrimSpace(e.Body))
}

// A CloseError is the end of a socket by a close frame.
type CloseError struct {
	Code   int // noCode if the frame has none
	Reason string
}

func (e *CloseError) Error() string { return fmt.Sprintf("closed with %d %s", e.Code, e.Reason) }

// final reports whether the viewer should not reconnect.
func (e *CloseError) final() bool {
	switch e.Code {
	case 4004, 4403, 4404, 4409:
		return true
	}
	return false
}

// unauthenticated reports whether the next socket needs a new grant.
func (e *CloseError) unauthenticated() bool { return e.Code == 4401 }

// A SilentError ends a socket whose relay was silent for so long.
type SilentError struct{ Quiet time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("the relay is silent for %v", e.Quiet.Round(time.Millisecond))
}

// A ProtocolError ends a socket whose relay broke the protocol.
type ProtocolError struct{ Err error }

func (e *ProtocolError) Error() string { return e.Err.Error() }
func (e *ProtocolError) Unwrap() error { return e.Err }

func violation(format string, args ...any) error { return &ProtocolError{fmt.Errorf(format, args...)} }

// A RefusedError says that input was refused for good and is not written.
type RefusedError struct{ protocol.InputDropped }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("input %d was refused: %s", e.Seq, e.Reason)
}

// errEnded says that a viewer has ended.
var errEnded = errors.New("the viewer has ended")
