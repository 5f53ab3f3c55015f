package openloop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
)

// Calls are made when they are due, never before, and all of them although the
// first one takes longer than the time between two.
func TestEach(t *testing.T) {
	begun, calls := time.Now(), 0
	n, err := Each(t.Context(), 500, 20*time.Millisecond, func(n int, due time.Time) error {
		if now := time.Now(); now.Before(due) || due.Before(begun.Add(time.Duration(n)*2*time.Millisecond)) {
			t.Errorf("call %d comes %v early", n, due.Sub(now))
		}
		if n == 0 {
			_ = pause.For(t.Context(), 5*time.Millisecond)
		}
		calls++
		return nil
	})
	if err != nil || n != 10 || calls != n {
		t.Errorf("%d calls, %d of them made: %v", n, calls, err)
	}
}

// It ends with the first failure, and with its context.
func TestEachEnds(t *testing.T) {
	failure := errors.New("no")
	n, err := Each(t.Context(), 1e4, time.Second, func(n int, _ time.Time) error {
		if n == 2 {
			return failure
		}
		return nil
	})
	if n != 2 || !errors.Is(err, failure) {
		t.Errorf("%d calls, then %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n, err = Each(ctx, 1, time.Hour, func(int, time.Time) error { cancel(); return nil })
	if n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d calls, then %v", n, err)
	}
}
