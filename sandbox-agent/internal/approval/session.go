package approval

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

// maxEvents bounds the kept events of a session. At the limit the older half is
// dropped.
const maxEvents = 1000

// A sessionLog is the log of one session's approvals. Its events are appended
// with the Log's mu held.
type sessionLog struct {
	// Static after construction.
	session protocol.SessionID
	events  *journal.Log[protocol.Approval]
	state   *state // drops the outcomes that the log drops

	before []protocol.Approval // pending before the first event; changes as events are dropped
}

// newSession returns the log of a session, without its journal, and the
// journal's options. The caller holds mu.
func (l *Log) newSession(id protocol.SessionID) (*sessionLog, journal.Options[protocol.Approval]) {
	s := &sessionLog{session: id, state: l.state}
	return s, journal.Options[protocol.Approval]{
		Disk: l.disk, Name: string(id) + suffix, Format: s, Bound: eventlog.Bound{Events: maxEvents},
		Lagged: &l.lagging,
	}
}

// pendingAt returns what was pending at an offset that the log has. The caller
// holds the Log's mu.
func (s *sessionLog) pendingAt(offset uint64) []protocol.Approval {
	pending := slices.Clone(s.before)
	s.events.View(func(events *eventlog.Log[protocol.Approval]) {
		for at, a := range events.All() {
			if at >= offset {
				return
			}
			pending = fold(pending, a)
		}
	})
	return pending
}

// fold applies an event to the pending approvals before it.
func fold(pending []protocol.Approval, a protocol.Approval) []protocol.Approval {
	if a.State == protocol.ApprovalPending {
		return append(pending, a)
	}
	return slices.DeleteFunc(pending, func(p protocol.Approval) bool { return p.ID == a.ID })
}

// Dropped implements journal.Format.
func (s *sessionLog) Dropped(events []protocol.Approval) {
	for _, a := range events {
		s.before = fold(s.before, a)
	}
	s.state.forget(events)
}
