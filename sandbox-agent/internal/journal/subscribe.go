package journal

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/protocol"
)

// Errors that end a subscription.
var (
	// ErrLagging says that the log dropped events before the subscriber read them.
	ErrLagging = errors.New("journal: the subscriber is too slow")
	// ErrReset says that the log has begun a new epoch.
	ErrReset = errors.New("journal: the log has begun another epoch")
	// ErrEnded says that the log or the subscription has ended.
	ErrEnded = errors.New("journal: the log has ended")
)

// A Subscription is a position in a log. It holds no events and delays nobody:
// it ends if the log drops events before they are read. The subscriber may
// subscribe again at its position, and learns of the gap.
type Subscription[E any] struct {
	// Static after construction.
	log  *Log[E]
	wake chan struct{} // capacity 1

	// Guarded by log.mu.
	cursor uint64 // offset of the next event
	err    error  // why it ended
}

// Subscribe follows the log from since on, or from now on if since is nil. If
// the log doesn't hold that position, it follows from now on and reports a gap.
// at is the position of the first event to come. The caller must close the
// subscription.
func (l *Log[E]) Subscribe(since *protocol.Position) (s *Subscription[E], at protocol.Position, gap bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at.Epoch = l.events.Epoch()
	at.Offset, gap = l.events.Since(since)
	s = &Subscription[E]{log: l, wake: make(chan struct{}, 1), cursor: at.Offset}
	l.subscriptions[s] = struct{}{}
	return s, at, gap
}

// Followed reports whether there are subscriptions.
func (l *Log[E]) Followed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.subscriptions) > 0
}

// Next waits for the next event. It fails with [ErrLagging], [ErrReset],
// [ErrEnded] or the cause of ctx's end. One goroutine at a time may call it.
func (s *Subscription[E]) Next(ctx context.Context) (offset uint64, e E, err error) {
	for {
		offset, e, ok, err := s.take()
		if ok || err != nil {
			return offset, e, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return 0, e, context.Cause(ctx)
		}
	}
}

// take returns the next event if there is one.
func (s *Subscription[E]) take() (offset uint64, e E, ok bool, err error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.err != nil {
		return 0, e, false, s.err
	}
	e, ok, gap := s.log.events.At(s.cursor)
	if gap != nil {
		s.log.o.Lagged.Add(1)
		s.end(ErrLagging)
		return 0, e, false, ErrLagging
	}
	offset = s.cursor
	if ok {
		s.cursor++
	}
	return offset, e, ok, nil
}

// Close ends the subscription.
func (s *Subscription[E]) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.end(ErrEnded)
}

// end ends s with err, unless it is over. The caller holds log.mu.
func (s *Subscription[E]) end(err error) {
	if s.err == nil {
		s.err = err
	}
	delete(s.log.subscriptions, s)
	s.poke()
}

// end ends all subscriptions with err. The caller holds mu.
func (l *Log[E]) end(err error) {
	for s := range l.subscriptions {
		s.end(err)
	}
}

// poke makes Next check again.
func (s *Subscription[E]) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
