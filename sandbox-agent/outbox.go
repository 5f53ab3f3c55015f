package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

// maxOutbox bounds what the control plane has not been told of one kind of news;
// the oldest goes first.
const maxOutbox = 1024

// An outbox tells the control plane of one kind of news, in its order, until it
// has heard it or refuses it. Nothing depends on that.
type outbox[T any] struct {
	// Static after construction.
	what string // is told, for the log
	post func(context.Context, T) error
	log  *slog.Logger
	wake chan struct{} // 1 element

	// Guarded by mu.
	mu      sync.Mutex
	queue   []T
	gone    uint64 // what left the queue at its front
	dropped uint64 // of these, for want of room
	logged  time.Time
}

func newOutbox[T any](what string, log *slog.Logger, post func(context.Context, T) error) *outbox[T] {
	return &outbox[T]{what: what, post: post, log: log, wake: make(chan struct{}, 1)}
}

// add queues news. It waits for nothing.
func (o *outbox[T]) add(news T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue = append(o.queue, news); len(o.queue) > maxOutbox {
		o.queue = o.queue[1:]
		o.gone++
		o.dropped++
		if now := time.Now(); now.Sub(o.logged) >= dropInterval {
			o.logged = now
			o.log.Warn(o.what+" dropped", "since_start", o.dropped)
		}
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// first returns what comes next, with its number.
func (o *outbox[T]) first() (news T, number uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return news, 0, false
	}
	return o.queue[0], o.gone, true
}

// done takes out what has a number, unless it has been dropped.
func (o *outbox[T]) done(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) > 0 && o.gone == number {
		o.queue = o.queue[1:]
		o.gone++
	}
}

// keep posts until ctx ends.
func (o *outbox[T]) keep(ctx context.Context) {
	pause := controlplane.Backoff{Longest: longestCallbackPause}
	for {
		next, number, ok := o.first()
		if !ok {
			select {
			case <-o.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := o.post(ctx, next)
		switch {
		case err == nil:
			pause.Reset()
			o.done(number)
		case ctx.Err() != nil:
			return
		case controlplane.Final(err) && protocol.KindOf(err) != protocol.KindUnauthenticated: // that may be the certificate
			o.log.Warn(o.what+" refused", "err", err)
			o.done(number)
		default:
			if controlplane.Sleep(ctx, pause.Next()) != nil {
				return
			}
		}
	}
}
