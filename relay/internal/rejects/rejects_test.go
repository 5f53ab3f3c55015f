package rejects

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/deploy/program/seldom"
	"github.com/fairlead/fairlead/protocol"
)

func TestCountsEachAndLogsSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := New(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&out, nil)))
		bad := protocol.Errorf(protocol.KindUnauthenticated, "token: header: alg must be ES256")
		for range 1000 {
			r.Count(Command, bad)
		}
		r.Count(Callback, bad)
		r.Count(Command, protocol.Errorf(protocol.KindInvalid, "command: ttlMs"))
		if n := testutil.ToFloat64(r.total.WithLabelValues(Command, "unauthenticated", "AuthError")); n != 1000 {
			t.Errorf("counted %v", n)
		}
		if n := strings.Count(out.String(), "\n"); n != 3 {
			t.Errorf("%d lines:\n%s", n, &out)
		}
		out.Reset()
		time.Sleep(seldom.Interval)
		r.Count(Command, bad)
		if !strings.Contains(out.String(), "unlogged=999") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("later: %s", &out)
		}
	})
}

func TestWhatIsNoRefusal(t *testing.T) {
	var none *Rejects
	none.Count(Command, errors.New("x"))
	registry := prometheus.NewRegistry()
	r := New(registry, slog.New(slog.DiscardHandler))
	r.Count(Command, nil)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range families[0].GetMetric() {
		if n := series.GetCounter().GetValue(); n != 0 {
			t.Errorf("%v counted of %v", n, series.GetLabel())
		}
	}
}
