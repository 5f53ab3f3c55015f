package mux

import (
	"errors"
	"fmt"

	"github.com/hashicorp/yamux"

	"github.com/fairlead/fairlead/protocol"
)

// A Reason names a rule of the guard.
type Reason string

const (
	ReasonMalformed Reason = "malformed"   // not a yamux frame, or out of place
	ReasonTruncated Reason = "truncated"   // the rest of a frame doesn't come
	ReasonFrameSize Reason = "frame_size"  // a frame beyond the window
	ReasonStreamID  Reason = "stream_id"   // a stream that the peer may not open, or that is open
	ReasonStreams   Reason = "streams"     // too many streams at once
	ReasonOpens     Reason = "open_flood"  // too many streams opened too quickly
	ReasonResets    Reason = "reset_flood" // too many streams taken back
	ReasonPings     Reason = "ping_flood"  // too many pings of yamux
	ReasonWindow    Reason = "window"      // more sent or granted than the window allows
	ReasonUnread    Reason = "unread"      // more sent than all windows should hold, while nobody reads
	ReasonStray     Reason = "stray"       // too many frames for streams that have ended, or never existed
	ReasonUnacked   Reason = "unacked"     // our streams are never acknowledged
	ReasonGoAway    Reason = "go_away"     // yamux's own farewell, which this protocol doesn't use
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonTruncated, ReasonFrameSize, ReasonStreamID, ReasonStreams, ReasonOpens, ReasonResets, ReasonPings,
		ReasonWindow, ReasonUnread, ReasonStray, ReasonUnacked, ReasonGoAway,
	}
}

// An Objection is why the guard ended a session: its peer sent something that
// only a hostile or broken one sends.
type Objection struct {
	Reason Reason
	detail string
}

func object(reason Reason, format string, args ...any) *Objection {
	return &Objection{reason, fmt.Sprintf(format, args...)}
}

func (o *Objection) Error() string { return "mux: peer " + o.detail }

// Unwrap returns an error for the peer.
func (o *Objection) Unwrap() error { return protocol.Errorf(protocol.KindInvalid, "%s", o.Error()) }

// judge turns an error by which yamux ended the session for the peer's fault
// into an objection. It returns nil for others.
func judge(err error) *Objection {
	switch {
	case errors.Is(err, yamux.ErrRecvWindowExceeded):
		return object(ReasonWindow, "sent more than the window")
	case errors.Is(err, yamux.ErrDuplicateStream):
		return object(ReasonStreamID, "opened a stream that is open")
	case errors.Is(err, yamux.ErrUnexpectedFlag):
		return object(ReasonMalformed, "closed a stream twice")
	}
	return nil
}
