package authority

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/deploy/program/seldom"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

const (
	// maxWaiting and maxWaitingBytes bound what waits in one queue; the oldest
	// goes first.
	maxWaiting      = 1024
	maxWaitingBytes = 8 << 20
	// longestPostPause bounds the pause between two attempts.
	longestPostPause = 5 * time.Second
)

// A report is one thing that the control plane should hear of.
type report struct {
	id       string    // for the log
	bytes    int       // what it takes in memory, where that may be much
	deadline time.Time // nobody waits for it any more; zero: somebody always does
	post     func(context.Context) error
}

// A queue posts reports of one kind in their order, each until the control plane
// has taken or refused it.
type queue struct {
	// Static after construction.
	what string // is reported, for the log
	// certified: the reports carry the certificate, so one that is refused as
	// unauthenticated may pass when that has been renewed.
	certified bool
	log       *slog.Logger
	added     chan struct{} // 1 element

	// Guarded by mu.
	mu      sync.Mutex
	waiting []report
	bytes   int
	gone    uint64 // reports that have left the queue
	dropped uint64 // of these, for want of room or of time
	logged  seldom.Limit[struct{}]
}

func newQueue(what string, certified bool, log *slog.Logger) *queue {
	return &queue{what: what, certified: certified, log: log, added: make(chan struct{}, 1)}
}

// add queues a report. It waits for nothing.
func (q *queue) add(r report) {
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	q.bytes += r.bytes
	for len(q.waiting) > maxWaiting || q.bytes > maxWaitingBytes && len(q.waiting) > 1 {
		q.drop()
	}
	q.mu.Unlock()
	wake(q.added)
}

// drop gives the oldest report up. The caller holds mu.
func (q *queue) drop() {
	q.pop()
	q.dropped++
	if q.logged.Happened(struct{}{}, time.Now()) > 0 {
		q.log.Warn(q.what+" dropped", "since_start", q.dropped)
	}
}

// pop takes the oldest report out. The caller holds mu.
func (q *queue) pop() {
	q.bytes -= q.waiting[0].bytes
	q.waiting[0] = report{}
	q.waiting = q.waiting[1:]
	q.gone++
}

// first returns the oldest report that somebody still waits for, with its number.
func (q *queue) first(now time.Time) (r report, number uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		if r = q.waiting[0]; r.deadline.IsZero() || !now.After(r.deadline) {
			return r, q.gone, true
		}
		q.drop()
	}
	return report{}, 0, false
}

// done takes out the report with a number, unless it has been dropped.
func (q *queue) done(number uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 && q.gone == number {
		q.pop()
	}
}

// keep posts until ctx ends.
func (q *queue) keep(ctx context.Context) {
	backoff := controlplane.Backoff{Longest: longestPostPause}
	for {
		next, number, ok := q.first(time.Now())
		if !ok {
			select {
			case <-q.added:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := next.post(ctx)
		switch {
		case err == nil:
			backoff.Reset()
			q.done(number)
		case ctx.Err() != nil:
			return
		case controlplane.Final(err) && !(q.certified && protocol.KindOf(err) == protocol.KindUnauthenticated):
			q.log.Warn(q.what+" refused", "id", next.id, "err", err)
			q.done(number)
		default:
			q.log.Debug(q.what+" not posted yet", "id", next.id, "err", err)
			if pause.For(ctx, backoff.Next()) != nil {
				return
			}
		}
	}
}
