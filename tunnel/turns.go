package tunnel

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxTurnWait is how long a registration waits for its turn.
	maxTurnWait = 2 * time.Second
	// burstFraction is the part of a second's registrations that may come at
	// once.
	burstFraction = 10
)

// errRate refuses a registration for which there is no turn.
var errRate = protocol.Errorf(protocol.KindTooMany, "too many registrations at the moment")

// turns space out registrations: many agents that lost the same relay are let in one
// after the other. nil lets in everybody.
type turns struct {
	// Static after construction.
	interval time.Duration
	slack    time.Duration // how early the turns of a burst are

	// Guarded by mu.
	mu     sync.Mutex
	due    time.Time   // of the next turn, without a burst
	taken  []time.Time // when the last turns began, as many as a second may have
	oldest int         // of taken
}

// newTurns returns turns at a rate per second, nil for 0.
func newTurns(perSecond float64) *turns {
	if perSecond <= 0 {
		return nil
	}
	burst := max(int(perSecond/burstFraction), 1)
	// No second has more turns than perSecond, one that begins with a burst either.
	interval := time.Duration(math.Ceil(float64(time.Second) / (perSecond - float64(burst-1))))
	return &turns{
		interval: interval, slack: time.Duration(burst-1) * interval, taken: make([]time.Time, max(int(perSecond), 1)),
	}
}

// take reserves the next turn and returns how long it is until then; none when
// that is too long.
func (t *turns) take(now time.Time) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	if due.Before(now) {
		due = now
	}
	if wait = due.Add(-t.slack).Sub(now); wait > maxTurnWait {
		return 0, false
	}
	t.due = due.Add(t.interval)
	return max(wait, 0), true
}

// begin begins a turn that has come, or returns how long it is until a second
// has passed since as many began as it may have: on a busy machine they come
// late, several at once.
func (t *turns) begin(now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait = t.taken[t.oldest].Add(time.Second).Sub(now); wait > 0 {
		return wait
	}
	t.taken[t.oldest] = now
	t.oldest = (t.oldest + 1) % len(t.taken)
	return 0
}

// await waits for a turn.
func (t *turns) await(ctx context.Context) (waited time.Duration, err error) {
	if t == nil {
		return 0, nil
	}
	wait, ok := t.take(time.Now())
	if !ok {
		return 0, errRate
	}
	for {
		if wait == 0 {
			if wait = t.begin(time.Now()); wait == 0 {
				return waited, nil
			}
		}
		if err := pause(ctx, wait); err != nil {
			return waited, err
		}
		waited += wait
		wait = 0
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
