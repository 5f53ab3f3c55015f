package process

import (
	"context"
	"errors"
	"syscall"
	"time"
)

const (
	interrupts     = 3
	interruptEvery = 500 * time.Millisecond
	terminateAfter = time.Second
	// killEvery is the time between two rounds of SIGKILL: what is forked
	// meanwhile escapes one.
	killEvery = 50 * time.Millisecond
	maxKills  = 200
)

// errUnkillable says that a program is still there after SIGKILL.
var errUnkillable = errors.New("process: the program can't be killed")

// A Running program is one that Stop can end.
type Running interface {
	// Signal sends sig to the program and what it started, and returns to how
	// many processes.
	Signal(sig syscall.Signal) int
	// Done is closed when the program itself has ended.
	Done() <-chan struct{}
}

// Stop ends a program: SIGINT three times, 500 ms apart, then SIGTERM, and 1 s
// later SIGKILL until it has ended. A paused one is continued first. Stop
// returns as soon as the program has ended; what it started may be left. When
// ctx ends first, SIGKILL comes at once. It fails when even that doesn't help.
func Stop(ctx context.Context, r Running, paused bool) error {
	if ended(r) {
		return nil
	}
	if paused {
		r.Signal(syscall.SIGCONT)
	}
	for range interrupts {
		if after(ctx, r, syscall.SIGINT, interruptEvery) {
			return nil
		}
	}
	if after(ctx, r, syscall.SIGTERM, terminateAfter) {
		return nil
	}
	for range maxKills {
		if after(context.Background(), r, syscall.SIGKILL, killEvery) {
			return nil
		}
	}
	return errUnkillable
}

// after sends sig and reports whether the program ends within patience. Without
// ctx nothing is sent and nobody waits.
func after(ctx context.Context, r Running, sig syscall.Signal, patience time.Duration) bool {
	if ctx.Err() != nil {
		return ended(r)
	}
	r.Signal(sig)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.Done():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return ended(r)
}

func ended(r Running) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}
