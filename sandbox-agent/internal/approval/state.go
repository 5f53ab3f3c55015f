package approval

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A subject is what a question is about: requests with the same subject wait
// for the same answer.
type subject struct {
	session protocol.SessionID
	kind    protocol.ApprovalKind
	host    string
	port    int
	secret  string
}

// A question is a pending approval with those who wait for it.
type question struct {
	subject  subject
	approval protocol.Approval // as it was asked
	deadline time.Time         // by the monotonic clock
	order    uint64            // rises with every question
	settled  chan struct{}     // closed when outcome and err are valid
	outcome  protocol.Decision // Deny beside an err
	err      error
}

// A state holds a sandbox's questions and answers. It has no clock and no disk:
// its caller stores each proposed change, and then settles it.
type state struct {
	asked uint64
	open  map[string]*question // by id
	same  map[subject]*question
	over  map[string]protocol.Approval // decided or expired, by id, as long as the log has them
}

func newState() *state {
	return &state{open: map[string]*question{}, same: map[subject]*question{}, over: map[string]protocol.Approval{}}
}

// maxBroker bounds the open questions about secrets. Nobody waits for them,
// they stay for minutes, and they must leave room for questions about
// connections.
const maxBroker = protocol.MaxApprovals / 2

// full reports whether there is no room for a question of kind.
func (s *state) full(kind protocol.ApprovalKind) bool {
	if len(s.open) >= protocol.MaxApprovals {
		return true
	}
	if kind != protocol.ApprovalBroker {
		return false
	}
	n := 0
	for about := range s.same {
		if about.kind == kind {
			n++
		}
	}
	return n >= maxBroker
}

// add opens a question; there must be none with its subject.
func (s *state) add(about subject, a protocol.Approval, deadline time.Time) *question {
	s.asked++
	q := &question{subject: about, approval: a, deadline: deadline, order: s.asked, settled: make(chan struct{})}
	s.open[a.ID], s.same[about] = q, q
	return q
}

// answer returns the approval in the state that answer leads to, and whether
// answer decides it. What is due must be settled before. It fails with
// KindNotFound for an unknown approval, KindInvalid for another kind and for an
// unknown decision, and KindConflict if it is pending under another revision.
func (s *state) answer(answer protocol.Approval, wall int64) (protocol.Approval, bool, error) {
	a, over := s.over[answer.ID]
	if q := s.open[answer.ID]; q != nil {
		a = q.approval
	} else if !over {
		return protocol.Approval{}, false, errUnknown
	}
	switch {
	case a.SessionID != answer.SessionID:
		return protocol.Approval{}, false, errUnknown
	case a.Kind != answer.Kind:
		return protocol.Approval{}, false, protocol.Errorf(protocol.KindInvalid, "the approval is of kind %s", string(a.Kind))
	case over:
		return a, false, nil
	case !answer.Decision.Known():
		return protocol.Approval{}, false, protocol.Errorf(protocol.KindInvalid, "unknown decision")
	case a.Revision != answer.Revision:
		return protocol.Approval{}, false, protocol.Errorf(protocol.KindConflict, "the approval is at revision %d", a.Revision)
	}
	a.Revision++
	a.State, a.Decision, a.EndsAt = protocol.ApprovalDecided, answer.Decision, wall
	a.UserID, a.GrantID, a.CommandID = answer.UserID, answer.GrantID, answer.CommandID
	return a, true, nil
}

var errUnknown = protocol.Errorf(protocol.KindNotFound, "no such approval")

// expired returns a in its expired state.
func expired(a protocol.Approval, wall int64) protocol.Approval {
	a.Revision++
	a.State, a.EndsAt = protocol.ApprovalExpired, wall
	return a
}

// due returns the questions past their deadlines, oldest first.
func (s *state) due(now time.Time) []*question {
	return s.choose(func(q *question) bool { return !now.Before(q.deadline) })
}

// of returns the open questions of a session, the oldest first.
func (s *state) of(session protocol.SessionID) []*question {
	return s.choose(func(q *question) bool { return q.subject.session == session })
}

func (s *state) choose(which func(*question) bool) []*question {
	var chosen []*question
	for _, q := range s.open {
		if which(q) {
			chosen = append(chosen, q)
		}
	}
	slices.SortFunc(chosen, func(a, b *question) int { return cmp.Compare(a.order, b.order) })
	return chosen
}

// deadline returns the next deadline, zero for none.
func (s *state) deadline() time.Time {
	var next time.Time
	for _, q := range s.open {
		if next.IsZero() || q.deadline.Before(next) {
			next = q.deadline
		}
	}
	return next
}

// settle closes a question with its outcome, once that is stored.
func (s *state) settle(outcome protocol.Approval) {
	q := s.open[outcome.ID]
	delete(s.open, outcome.ID)
	delete(s.same, q.subject)
	s.over[outcome.ID] = outcome
	if outcome.State == protocol.ApprovalDecided {
		q.outcome = outcome.Decision
		close(q.settled)
		return
	}
	q.fail(errExpired)
}

// forget drops the outcomes among events, which the log has dropped.
func (s *state) forget(events []protocol.Approval) {
	for _, a := range events {
		if a.State != protocol.ApprovalPending {
			delete(s.over, a.ID)
		}
	}
}

var errExpired = protocol.Errorf(protocol.KindExpired, "nobody has decided in time")

// fail releases those who wait for an unanswered question.
func (q *question) fail(err error) {
	q.outcome, q.err = protocol.Deny, err
	close(q.settled)
}
