package approval

import (
	"crypto/rand"
	"encoding/binary"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// maxEvents bounds the events of a session that are kept. When there are so
// many, the older half goes.
const maxEvents = 1000

// A sessionLog is what happened to the approvals of one session. Guarded by the
// Log's mu.
type sessionLog struct {
	session protocol.SessionID
	epoch   protocol.Epoch
	base    uint64              // offset of the first event
	before  []protocol.Approval // pending at base
	events  []protocol.Approval
	subs    map[*Subscription]struct{}
	rewrite bool // the file is not this log up to now: it has to be replaced
	apart   bool // the file, if there is one, has another epoch
}

// newEpoch returns a random name for an unbroken run of a log.
func newEpoch() protocol.Epoch {
	var random [8]byte
	rand.Read(random[:])
	return protocol.Epoch(binary.BigEndian.Uint64(random[:]))
}

func (s *sessionLog) file() string { return string(s.session) + suffix }

// next returns the offset of the event that comes next.
func (s *sessionLog) next() uint64 { return s.base + uint64(len(s.events)) }

// pendingAt returns what was pending at an offset that the log has.
func (s *sessionLog) pendingAt(offset uint64) []protocol.Approval {
	return fold(slices.Clone(s.before), s.events[:offset-s.base])
}

// fold applies events to what was pending before them.
func fold(pending, events []protocol.Approval) []protocol.Approval {
	for _, a := range events {
		if a.State == protocol.ApprovalPending {
			pending = append(pending, a)
			continue
		}
		pending = slices.DeleteFunc(pending, func(p protocol.Approval) bool { return p.ID == a.ID })
	}
	return pending
}

// cut drops the older half of the events and returns it.
func (s *sessionLog) cut() []protocol.Approval {
	old := s.events[:maxEvents/2]
	s.before = fold(s.before, old)
	s.base += uint64(len(old))
	s.events = slices.Clone(s.events[len(old):])
	return old
}

// add adds events that are stored, and tells the subscribers.
func (s *sessionLog) add(events []protocol.Approval) {
	s.events = append(s.events, events...)
	for sub := range s.subs {
		sub.poke()
	}
}

// breakOff ends the epoch after a failure of the disk: what is there may not go
// on as this log does.
func (s *sessionLog) breakOff() {
	s.rewrite = true
	if s.apart {
		return
	}
	s.apart, s.epoch = true, newEpoch()
	for sub := range s.subs {
		sub.end(ErrReset)
	}
}
