package approval

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

// maxListed bounds the finished approvals in a list.
const maxListed = 100

// List returns the approvals of a session: pending ones oldest first, then the
// newest of the others.
func (l *Log) List(session protocol.SessionID) protocol.ApprovalList {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.closed {
		l.expire(now)
	}
	list := protocol.ApprovalList{Approvals: []protocol.Approval{}, Epoch: l.unknown}
	s := l.sessions[session]
	if s == nil {
		return list
	}
	for _, q := range l.state.of(session) {
		list.Approvals = append(list.Approvals, l.shown(q.approval, now))
	}
	s.events.View(func(events *eventlog.Log[protocol.Approval]) {
		list.Epoch, list.Offset = events.Epoch(), events.Next()
		listed := 0
		for _, a := range events.Backward() {
			if a.State != protocol.ApprovalPending && listed < maxListed {
				list.Approvals = append(list.Approvals, a)
				listed++
			}
		}
	})
	return list
}

// timed returns a with the remaining time, if it is pending and has a deadline.
// The caller holds mu.
func (l *Log) timed(a protocol.Approval, now time.Time) protocol.Approval {
	if q := l.state.open[a.ID]; q != nil && a.State == protocol.ApprovalPending && !q.deadline.IsZero() {
		a.LeftMs = max(1, q.deadline.Sub(now).Milliseconds())
	}
	return a
}

// shown returns a as people see it: if it is pending, with the remaining time
// and what a tool is to do, which the log on disk doesn't have. The caller holds
// mu.
func (l *Log) shown(a protocol.Approval, now time.Time) protocol.Approval {
	if q := l.state.open[a.ID]; q != nil && a.State == protocol.ApprovalPending {
		a.Input = q.input
	}
	return l.timed(a, now)
}

// Bounds of what OPENED lists, in bytes of JSON. It is one frame.
const (
	maxOpenedInputs  = 48 << 10
	maxOpenedPending = 96 << 10
)

// fit puts pending approvals into opened, the oldest first: inputs and
// approvals as long as there is room for them.
func fit(opened *protocol.ApprovalsOpened, pending []protocol.Approval) {
	inputs, all := 0, 0
	for _, a := range pending {
		if inputs += len(a.Input); inputs > maxOpenedInputs && a.Input != nil {
			inputs -= len(a.Input)
			a.Input, opened.More = nil, true
		}
		if all += len(line(a)); all > maxOpenedPending {
			opened.More = true
			return
		}
		opened.Pending = append(opened.Pending, a)
	}
}

// Errors that end a subscription.
var (
	// ErrLagging says that events are gone before the subscriber has taken them.
	ErrLagging = journal.ErrLagging
	// ErrReset says that the log has another epoch now.
	ErrReset = journal.ErrReset
	// ErrEnded says that the session, or the agent, is over.
	ErrEnded = journal.ErrEnded
)

// A Subscription is a position in a session's log. A subscriber that is slower
// than the log drops events is ended, and may return.
type Subscription struct {
	// Static after construction.
	log     *Log
	session *sessionLog
	events  *journal.Subscription[protocol.Approval]
}

// Subscribe follows the log of a session from since on, nil for now. If the log
// lacks that position, it follows from now on and reports a gap. The caller
// must close it. It fails with KindUnavailable if the Log is closed.
func (l *Log) Subscribe(session protocol.SessionID, since *protocol.Position) (*Subscription, protocol.ApprovalsOpened, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, protocol.ApprovalsOpened{}, errClosed
	}
	now := time.Now()
	l.expire(now)
	s := l.session(session)
	events, at, gap := s.events.Subscribe(since)
	opened := protocol.ApprovalsOpened{Epoch: at.Epoch, Offset: at.Offset, Gap: gap, Pending: []protocol.Approval{}}
	pending := s.pendingAt(at.Offset)
	for i, a := range pending {
		pending[i] = l.shown(a, now)
	}
	fit(&opened, pending)
	return &Subscription{l, s, events}, opened, nil
}

// Next waits for the next event and returns it with the present remaining time.
// It fails with [ErrLagging], [ErrReset], [ErrEnded] or the cause of ctx's end.
// Only one goroutine may call it.
func (s *Subscription) Next(ctx context.Context) (protocol.ApprovalEvent, error) {
	offset, a, err := s.events.Next(ctx)
	if err != nil {
		return protocol.ApprovalEvent{}, err
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return protocol.ApprovalEvent{Offset: offset, Approval: s.log.shown(a, time.Now())}, nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.events.Close()
	s.log.drop(s.session)
}
