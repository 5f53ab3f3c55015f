package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

const (
	format = 1
	suffix = ".jsonl"
	// maxFiles bounds the sessions that are kept across a restart: the ones with
	// the latest questions.
	maxFiles = 256
)

// A header is the first line of a session's file. The others are consecutive
// [protocol.ApprovalEvent]s from Offset on.
type header struct {
	Format  int                 `json:"format"`
	Session protocol.SessionID  `json:"session"`
	Epoch   protocol.Epoch      `json:"epoch"`
	Offset  uint64              `json:"offset"`  // of the first event
	Pending []protocol.Approval `json:"pending"` // as they stood there
}

// line returns v as a line of the file.
func line(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("approval: line of plain values: %v", err))
	}
	return body
}

// Header implements journal.Format.
func (s *sessionLog) Header(first protocol.Position) []byte {
	return line(header{format, s.session, first.Epoch, first.Offset, append([]protocol.Approval{}, s.before...)})
}

// ParseHeader implements journal.Format.
func (s *sessionLog) ParseHeader(text []byte) (protocol.Position, error) {
	var h header
	if protocol.UnmarshalStrict(text, &h) != nil || h.Format != format || h.Session != s.session {
		return protocol.Position{}, journal.ErrDamaged
	}
	for _, a := range h.Pending {
		if !s.stored(a) || a.State != protocol.ApprovalPending {
			return protocol.Position{}, journal.ErrDamaged
		}
	}
	s.before = h.Pending
	return protocol.Position{Epoch: h.Epoch, Offset: h.Offset}, nil
}

// Event implements journal.Format.
func (s *sessionLog) Event(offset uint64, a protocol.Approval) []byte {
	return line(protocol.ApprovalEvent{Offset: offset, Approval: a})
}

// ParseEvent implements journal.Format.
func (s *sessionLog) ParseEvent(text []byte) (uint64, protocol.Approval, error) {
	var e protocol.ApprovalEvent
	if err := protocol.UnmarshalStrict(text, &e); err != nil {
		return 0, protocol.Approval{}, err
	}
	if !s.stored(e.Approval) {
		return 0, protocol.Approval{}, journal.ErrDamaged
	}
	return e.Offset, e.Approval, nil
}

// stored reports whether a is an approval that this log can contain.
func (s *sessionLog) stored(a protocol.Approval) bool {
	known := a.State == protocol.ApprovalPending && a.Revision == 1 || a.State == protocol.ApprovalExpired ||
		a.State == protocol.ApprovalCancelled || a.State == protocol.ApprovalDecided && a.Decision.Known()
	return known && protocol.ValidID(a.ID) && a.SessionID == s.session && a.Kind.Known() && a.Revision > 0
}

// unstored is the error for what could not be written.
func unstored(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return protocol.Errorf(protocol.KindNoSpace, "the sandbox's disk is full: the approval can't be stored")
	}
	return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("approval log: %w", err))
}
