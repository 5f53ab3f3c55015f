// Package openloop does things at times that are fixed beforehand, however long
// each takes.
package openloop

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Each calls do rate times a second for so long, at least once. due is when the
// call was due: a latency counts from then. It ends with the first error, or
// with ctx, and returns how many calls were made.
//
// It wakes within microseconds, where the runtime's own timers are up to a
// millisecond late: several times what a keystroke takes.
func Each(ctx context.Context, rate float64, lasts time.Duration, do func(n int, due time.Time) error) (n int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Sleeps of this thread may end 1 ns late, instead of 50 µs; 0 is the default.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()
	start := time.Now()
	for ; n < max(1, int(rate*lasts.Seconds())); n++ {
		due := start.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		if err := precisely(ctx, due); err != nil {
			return n, err
		}
		if err := do(n, due); err != nil {
			return n, err
		}
	}
	return n, nil
}

// longestSleep bounds how long the end of a context goes unnoticed.
const longestSleep = 50 * time.Millisecond

// precisely waits until a moment or the end of ctx, in the thread itself.
func precisely(ctx context.Context, at time.Time) error {
	for ctx.Err() == nil {
		left := time.Until(at)
		if left <= 0 {
			return nil
		}
		ts := unix.NsecToTimespec(int64(min(left, longestSleep)))
		if err := unix.Nanosleep(&ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ctx.Err()
}
