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
	// killEvery is the time between two rounds of SIGKILL: a process forked during
	// one escapes it.
	killEvery = 50 * time.Millisecond
	maxKills  = 200
)

// errUnkillable says that a program still runs after SIGKILL.
var errUnkillable = errors.New("process: the program can't be killed")

// A Running program is one that Stop can end.
type Running interface {
	// Signal sends sig to the program and all that it started, and returns the
	// number of processes.
	Signal(sig syscall.Signal) int
	// Done is closed when the program itself has ended.
	Done() <-chan struct{}
}

// Stop ends a program: SIGINT three times, 500 ms apart, then SIGTERM, and 1 s
// later SIGKILL until it has ended. A paused program is continued first. Stop
// returns as soon as the program has ended; its children may still run. If ctx
// ends first, SIGKILL comes at once. Stop fails if even that doesn't end it.
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

// after sends sig and reports whether the program ends within patience. If ctx
// has ended it neither sends nor waits.
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
