package approval

import (
	"cmp"
	"encoding/json"
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

// A Reply is what an answer says to the coding agent beside its decision. It is
// never stored: it may hold secrets.
type Reply struct {
	UpdatedInput json.RawMessage // what the tool gets instead; nil: what was asked
	Message      string          // of a denial
}

// An Outcome is what became of a question.
type Outcome struct {
	// Approval is the question in its last state: decided, with the Decision,
	// Remember and by whom; expired; or cancelled. It is pending if the Log was
	// closed.
	Approval protocol.Approval
	Reply
}

// A question is a pending approval with those who wait for it.
type question struct {
	subject  subject           // zero for a tool: no two questions are the same
	approval protocol.Approval // as it was asked and stored
	input    json.RawMessage   // what a tool is to do; nil: unknown, or too large to be shown
	deadline time.Time         // by the monotonic clock; zero: it waits without limit
	order    uint64            // rises with every question
	settled  chan struct{}     // closed when outcome and err are valid
	outcome  Outcome
	err      error // why there is no answer
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

// full reports whether there is no room for a question of kind, which is not
// about a tool.
func (s *state) full(kind protocol.ApprovalKind) bool {
	if len(s.same) >= protocol.MaxApprovals {
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
	q := s.opened(a, deadline)
	q.subject, s.same[about] = about, q
	return q
}

// addTool opens a question about a tool. A zero deadline is none.
func (s *state) addTool(a protocol.Approval, input json.RawMessage, deadline time.Time) *question {
	q := s.opened(a, deadline)
	q.input = input
	return q
}

func (s *state) opened(a protocol.Approval, deadline time.Time) *question {
	s.asked++
	q := &question{approval: a, deadline: deadline, order: s.asked, settled: make(chan struct{})}
	s.open[a.ID] = q
	return q
}

// answer returns the approval in the state that answer leads to, and whether
// answer decides it. What is due must be settled before. It fails with
// KindNotFound for an unknown approval, and for a tool's where another is meant
// or the other way round; KindInvalid for another kind else, and for an unknown
// decision; and KindConflict if it is pending under another revision.
func (s *state) answer(answer protocol.Approval, wall int64) (protocol.Approval, bool, error) {
	a, over := s.over[answer.ID]
	if q := s.open[answer.ID]; q != nil {
		a = q.approval
	} else if !over {
		return protocol.Approval{}, false, errUnknown
	}
	switch {
	case a.SessionID != answer.SessionID, (a.Kind == protocol.ApprovalTool) != (answer.Kind == protocol.ApprovalTool):
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
	a.UserID, a.GrantID, a.CommandID, a.Remember = answer.UserID, answer.GrantID, answer.CommandID, answer.Remember
	return a, true, nil
}

var errUnknown = protocol.Errorf(protocol.KindNotFound, "no such approval")

// expired returns a in its expired state.
func expired(a protocol.Approval, wall int64) protocol.Approval {
	a.Revision++
	a.State, a.EndsAt = protocol.ApprovalExpired, wall
	return a
}

// cancelled returns a in its cancelled state.
func cancelled(a protocol.Approval, wall int64) protocol.Approval {
	a.Revision++
	a.State, a.EndsAt = protocol.ApprovalCancelled, wall
	return a
}

// without returns a as it is after the end of its session or of the process:
// nobody asks for a tool any more, and any other question has expired.
func without(a protocol.Approval, wall int64) protocol.Approval {
	if a.Kind == protocol.ApprovalTool {
		return cancelled(a, wall)
	}
	return expired(a, wall)
}

// due returns the questions past their deadlines, oldest first.
func (s *state) due(now time.Time) []*question {
	return s.choose(func(q *question) bool { return !q.deadline.IsZero() && !now.Before(q.deadline) })
}

// of returns the open questions of a session, the oldest first.
func (s *state) of(session protocol.SessionID) []*question {
	return s.choose(func(q *question) bool { return q.approval.SessionID == session })
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
		if next.IsZero() || !q.deadline.IsZero() && q.deadline.Before(next) {
			next = q.deadline
		}
	}
	return next
}

// settle closes a question with its outcome, once that is stored. with is what
// an answer says beyond that.
func (s *state) settle(outcome protocol.Approval, with Reply) {
	q := s.open[outcome.ID]
	delete(s.open, outcome.ID)
	if s.same[q.subject] == q {
		delete(s.same, q.subject)
	}
	s.over[outcome.ID] = outcome
	q.outcome = Outcome{Approval: outcome, Reply: with}
	switch outcome.State {
	case protocol.ApprovalExpired:
		q.err = errExpired
	case protocol.ApprovalCancelled:
		q.err = errCancelled
	}
	close(q.settled)
}

// forget drops the outcomes among events, which the log has dropped.
func (s *state) forget(events []protocol.Approval) {
	for _, a := range events {
		if a.State != protocol.ApprovalPending {
			delete(s.over, a.ID)
		}
	}
}

var (
	errExpired   = protocol.Errorf(protocol.KindExpired, "nobody has decided in time")
	errCancelled = protocol.Errorf(protocol.KindEnded, "nobody needs an answer any more")
)

// fail releases those who wait for an unanswered question.
func (q *question) fail(err error) {
	q.outcome, q.err = Outcome{Approval: q.approval}, err
	close(q.settled)
}
