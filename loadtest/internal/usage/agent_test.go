package usage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A process's heap counts once it was collected twice after the first look, and
// then at its lowest; goroutines of a moment don't count.
func TestCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		read := func(context.Context) (measure.Resource, error) {
			n++
			since := time.Since(begun)
			r := measure.Resource{Goroutines: 20 + n%3, HeapBytes: int64(9000 + n), FDs: 7, Collections: 4}
			if since > time.Minute { // not enough: it may have begun before
				r.HeapBytes, r.Collections = int64(4000+n), 5
			}
			if since > 3*time.Minute {
				r.HeapBytes, r.Collections = int64(2000+n), 6
			}
			return r, nil
		}
		waited := int64(0)
		r, complete, err := Collected(t.Context(), read, func(n int64) { waited = max(waited, n) })
		if err != nil || !complete || waited != 1 {
			t.Fatalf("%v %v, waited for %d", complete, err, waited)
		}
		if at := n - leastReadings + 1; r.Goroutines != 20 || r.HeapBytes != int64(2000+at) || r.FDs != 7 {
			t.Errorf("after %d readings: %+v", n, r)
		}
		if took := time.Since(begun); took > 3*time.Minute+2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A process that collects nothing is waited for no longer than that.
func TestCollectedGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		read := func(context.Context) (measure.Resource, error) {
			return measure.Resource{Goroutines: 3, HeapBytes: 8, Collections: 1}, nil
		}
		r, complete, err := Collected(t.Context(), read, func(int64) {})
		if took := time.Since(begun); err != nil || complete || r.HeapBytes != 8 || took < CollectionWait || took > CollectionWait+time.Second {
			t.Errorf("%+v %v %v after %v", r, complete, err, took)
		}
		gone := errors.New("gone")
		if _, _, err := Collected(t.Context(), func(context.Context) (measure.Resource, error) { return measure.Resource{}, gone }, nil); !errors.Is(err, gone) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := Collected(ctx, read, func(int64) {}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
