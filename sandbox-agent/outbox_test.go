package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

// News is told once each and in order, again after a failure, and not again
// after a refusal.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		failures := 3
		o := newOutbox("numbers", slog.New(slog.DiscardHandler), func(_ context.Context, n int) error {
			switch {
			case n == 1 && failures > 0:
				failures--
				return errors.New("nobody there")
			case n == 2:
				return controlplane.RefusedWith(http.StatusBadRequest, "no such number")
			}
			told = append(told, n)
			return nil
		})
		for n := range 4 {
			o.add(n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go o.keep(ctx)
		time.Sleep(time.Minute)
		o.add(4)
		synctest.Wait()
		cancel()
		if want := []int{0, 1, 3, 4}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// The oldest news gives way, be it just under way.
func TestOutboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		posted, answer := make(chan bool), make(chan bool)
		o := newOutbox("numbers", slog.New(slog.DiscardHandler), func(_ context.Context, n int) error {
			if n == 0 {
				posted <- true
				<-answer
			}
			told = append(told, n)
			return nil
		})
		o.add(0)
		ctx, cancel := context.WithCancel(t.Context())
		go o.keep(ctx)
		<-posted
		for n := range maxOutbox {
			o.add(n + 1)
		}
		close(answer)
		synctest.Wait()
		cancel()
		if len(told) != maxOutbox+1 || !slices.IsSorted(told) || o.dropped != 1 {
			t.Errorf("told %d, dropped %d", len(told), o.dropped)
		}
	})
}
