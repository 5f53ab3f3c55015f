package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

const (
	// maxWrite bounds one write, in bytes, unless one chunk is larger. It is more
	// than a terminal takes at once.
	maxWrite = 32 << 10
	// maxLags bounds the lags that are remembered: the newest.
	maxLags = 1 << 14
	// gather is how long after a write the next one is made at the earliest: at
	// thousands of chunks a second the program in the terminal would take more of a
	// processor than what carries its output. Who publishes to a peer does it, too.
	gather = 2 * time.Millisecond
)

// stream writes the chunks of s as they get due, none ahead of its time. It writes
// together what has become due since the last write, or while the terminal was held
// back.
func (m *Machine) stream(ctx context.Context, s pattern.Spec) error {
	var l lags
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lags = l
	}()
	var (
		buf  []byte
		next time.Time // of a write
	)
	for k := 0; s.Chunks == 0 || k < s.Chunks; {
		if due := s.Due(k); next.Before(due) {
			next = due
		}
		if err := m.sleepUntil(ctx, next); err != nil {
			return err
		}
		now := time.Now()
		if s.Rate > 0 {
			next = now.Add(gather)
		}
		buf = s.Append(buf[:0], k)
		l.add(now.Sub(s.Due(k)))
		for k++; (s.Chunks == 0 || k < s.Chunks) && len(buf)+s.Chunk <= maxWrite && !s.Due(k).After(now); k++ {
			buf = s.Append(buf, k)
			l.add(now.Sub(s.Due(k)))
		}
		if _, err := m.out.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// flood writes f.
func (m *Machine) flood(ctx context.Context, f pattern.Flood) error {
	r := f.Reader()
	for p := r.Next(); len(p) > 0; p = r.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := m.out.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// nearBy is how long before its time a timer is too coarse for what is due: Go's
// may be late by a millisecond.
const nearBy = 2 * time.Millisecond

// sleepUntil waits until t.
func (m *Machine) sleepUntil(ctx context.Context, t time.Time) error {
	wait := time.Until(t)
	if m.precise {
		wait -= nearBy
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for wait = time.Until(t); m.precise && wait > 0; wait = time.Until(t) { // a signal ends the sleep early
		rest := unix.NsecToTimespec(wait.Nanoseconds())
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &rest, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("sleep: %w", err)
		}
	}
	return ctx.Err()
}

// lags are by how much chunks were late.
type lags struct {
	count  int
	newest []time.Duration // at most maxLags
	most   time.Duration
}

func (l *lags) add(d time.Duration) {
	d = max(d, 0)
	l.most = max(l.most, d)
	if len(l.newest) < maxLags {
		l.newest = append(l.newest, d)
	} else {
		l.newest[l.count%maxLags] = d
	}
	l.count++
}

// String returns COUNT P50 P99 MAX, in microseconds.
func (l lags) String() string {
	var p50, p99 time.Duration
	if n := len(l.newest); n > 0 {
		sorted := slices.Sorted(slices.Values(l.newest))
		p50, p99 = sorted[n/2], sorted[min(n*99/100, n-1)]
	}
	return fmt.Sprintf("%d %d %d %d", l.count, p50.Microseconds(), p99.Microseconds(), l.most.Microseconds())
}
