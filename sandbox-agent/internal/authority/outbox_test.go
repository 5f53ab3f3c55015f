package authority

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

// numbers returns a queue and what adds a number to it, which post posts.
func numbers(post func(n int) error) (q *queue, add func(n int)) {
	q = newQueue("numbers", true, slog.New(slog.DiscardHandler))
	return q, func(n int) { q.add(report{post: func(context.Context) error { return post(n) }}) }
}

// Reports are posted once each and in order, again after a failure, and not again
// after a refusal, unless another certificate may help.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		failures := []error{errors.New("nobody there"), controlplane.RefusedWith(http.StatusUnauthorized, "not certified"), controlplane.RefusedWith(http.StatusServiceUnavailable, "later")}
		q, add := numbers(func(n int) error {
			switch {
			case n == 1 && len(failures) > 0:
				err := failures[0]
				failures = failures[1:]
				return err
			case n == 2:
				return controlplane.RefusedWith(http.StatusBadRequest, "no such number")
			}
			told = append(told, n)
			return nil
		})
		for n := range 4 {
			add(n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go q.keep(ctx)
		time.Sleep(time.Minute)
		add(4)
		synctest.Wait()
		cancel()
		if want := []int{0, 1, 3, 4}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// The oldest report gives way, be it just under way.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		posted, answer := make(chan bool), make(chan bool)
		q, add := numbers(func(n int) error {
			if n == 0 {
				posted <- true
				<-answer
			}
			told = append(told, n)
			return nil
		})
		add(0)
		ctx, cancel := context.WithCancel(t.Context())
		go q.keep(ctx)
		<-posted
		for n := range maxWaiting {
			add(n + 1)
		}
		close(answer)
		synctest.Wait()
		cancel()
		if len(told) != maxWaiting+1 || !slices.IsSorted(told) || q.dropped != 1 {
			t.Errorf("told %d, dropped %d", len(told), q.dropped)
		}
	})
}
