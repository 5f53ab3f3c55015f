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
	ReasonMalformed Reason = "malformed"   // no frame of yamux, or one that makes no sense where it came
	ReasonTruncated Reason = "truncated"   // a frame whose rest doesn't come
	ReasonFrameSize Reason = "frame_size"  // a frame beyond the window
	ReasonStreamID  Reason = "stream_id"   // a stream that is not the peer's to open, or is open
	ReasonStreams   Reason = "streams"     // too many streams at once
	ReasonOpens     Reason = "open_flood"  // too many streams in too short a time
	ReasonResets    Reason = "reset_flood" // too many streams taken back
	ReasonPings     Reason = "ping_flood"  // too many pings of yamux
	ReasonWindow    Reason = "window"      // more than the window was sent, or is to be
	ReasonUnread    Reason = "unread"      // more than all windows should hold was sent, and isn't read
	ReasonStray     Reason = "stray"       // too many frames for streams that are over, or never were
	ReasonUnacked   Reason = "unacked"     // streams that we opened are never acknowledged
	ReasonGoAway    Reason = "go_away"     // yamux's own farewell, which nobody says here
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonTruncated, ReasonFrameSize, ReasonStreamID, ReasonStreams, ReasonOpens, ReasonResets, ReasonPings,
		ReasonWindow, ReasonUnread, ReasonStray, ReasonUnacked, ReasonGoAway,
	}
}

// An Objection is why the guard ended a session: what its peer sent is what only
// a hostile or broken one sends.
type Objection struct {
	Reason Reason
	detail string
}

func object(reason Reason, format string, args ...any) *Objection {
	return &Objection{reason, fmt.Sprintf(format, args...)}
}

func (o *Objection) Error() string { return "mux: peer " + o.detail }

// Unwrap gives the peer, who is told, something to go by.
func (o *Objection) Unwrap() error { return protocol.Errorf(protocol.KindInvalid, "%s", o.Error()) }

// judge makes an objection of an error by which yamux itself ended the session
// for what the peer sent. It returns nil for others.
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
