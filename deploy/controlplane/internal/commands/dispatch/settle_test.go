package dispatch

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
)

// waiting tells nobody until it is closed.
type waiting chan struct{}

func (w waiting) settle(context.Context, store.Command) { <-w }

// TestFound14SettlementsAreBounded: what is too much is dropped and counted, and
// so is what comes after the end.
func TestFound14SettlementsAreBounded(t *testing.T) {
	counts, free := metrics.New(), make(chan struct{})
	q := &Settlements{settler: waiting(free), ctx: t.Context(), counts: counts}
	for range settleWorkers + maxSettled + 7 {
		q.Add(store.Command{})
	}
	close(free)
	q.Close()
	q.Add(store.Command{})
	if n := testutil.ToFloat64(counts.Settled.WithLabelValues(metrics.SettledDropped)); n < 8 || n > 8+settleWorkers {
		t.Errorf("%v dropped, want 8 or what the workers had not taken yet", n)
	}
}
