package approval

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// maxListed bounds the approvals of a list that are over.
const maxListed = 100

// List returns the approvals of a session: those that are pending, the oldest
// first, and then the newest of the others.
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
	list.Epoch, list.Offset = s.epoch, s.next()
	for _, q := range l.state.of(session) {
		list.Approvals = append(list.Approvals, l.shown(q.approval, now))
	}
	listed := 0
	for _, a := range slices.Backward(s.events) {
		if a.State != protocol.ApprovalPending && listed < maxListed {
			list.Approvals = append(list.Approvals, a)
			listed++
		}
	}
	return list
}

// shown returns a as it is sent now: with the time that is left, if it is still
// pending. It is called with mu held.
func (l *Log) shown(a protocol.Approval, now time.Time) protocol.Approval {
	if q := l.state.open[a.ID]; q != nil && a.State == protocol.ApprovalPending {
		a.LeftMs = max(1, q.deadline.Sub(now).Milliseconds())
	}
	return a
}

// A Subscription is a place in the log of a session. It holds no events itself:
// whoever is slower than the log slides is ended, and may come back.
type Subscription struct {
	// Static after construction.
	log  *Log
	wake chan struct{} // capacity 1

	// Guarded by log.mu.
	session *sessionLog
	cursor  uint64 // offset of the next event
	err     error  // why it is over
}

// Subscribe follows the log of a session from since on, nil for now. Where that
// position is not in the log, it follows from now on and says that there is a
// gap. It must be closed. It fails with KindUnavailable when the Log is closed.
func (l *Log) Subscribe(session protocol.SessionID, since *protocol.Position) (*Subscription, protocol.ApprovalsOpened, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, protocol.ApprovalsOpened{}, errClosed
	}
	now := time.Now()
	l.expire(now)
	s := l.session(session)
	opened := protocol.ApprovalsOpened{Epoch: s.epoch, Offset: s.next(), Pending: []protocol.Approval{}}
	switch {
	case since == nil:
	case since.Epoch == s.epoch && since.Offset >= s.base && since.Offset <= s.next():
		opened.Offset = since.Offset
	default:
		opened.Gap = true
	}
	for _, a := range s.pendingAt(opened.Offset) {
		opened.Pending = append(opened.Pending, l.shown(a, now))
	}
	sub := &Subscription{log: l, wake: make(chan struct{}, 1), session: s, cursor: opened.Offset}
	s.subs[sub] = struct{}{}
	return sub, opened, nil
}

// Next waits for the next event and returns it, with the time that is left now.
// It fails with [ErrLagging], [ErrReset], [ErrEnded] or the cause of ctx's end.
// One goroutine at a time may call it.
func (s *Subscription) Next(ctx context.Context) (protocol.ApprovalEvent, error) {
	for {
		event, ok, err := s.take()
		if ok || err != nil {
			return event, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return protocol.ApprovalEvent{}, context.Cause(ctx)
		}
	}
}

// take returns the next event if there is one.
func (s *Subscription) take() (protocol.ApprovalEvent, bool, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	of := s.session
	switch {
	case s.err != nil:
		return protocol.ApprovalEvent{}, false, s.err
	case s.cursor < of.base:
		s.log.stats.Lagging++
		s.end(ErrLagging)
		return protocol.ApprovalEvent{}, false, ErrLagging
	case s.cursor == of.next():
		return protocol.ApprovalEvent{}, false, nil
	}
	event := protocol.ApprovalEvent{
		Offset: s.cursor, Approval: s.log.shown(of.events[s.cursor-of.base], time.Now()),
	}
	s.cursor++
	return event, true, nil
}

// end ends s with err. It is called with log.mu held.
func (s *Subscription) end(err error) {
	if s.err == nil {
		s.err = err
	}
	delete(s.session.subs, s)
	s.poke()
}

// poke has Next look again.
func (s *Subscription) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.end(ErrEnded)
	s.log.drop(s.session)
}
