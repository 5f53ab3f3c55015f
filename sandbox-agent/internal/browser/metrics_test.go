package browser

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestRefusalsAreCounted: each by its reason, and what is let through isn't.
func TestRefusalsAreCounted(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	var uid atomic.Int32
	uid.Store(1)
	metrics := NewMetrics()
	options := Options{Metrics: metrics, Peers: peer.UsersFunc(func(netip.AddrPort, netip.AddrPort) (int, error) { return int(uid.Load()), nil })}
	closed, _ := through(t, options)
	options.Ports = all
	open, _ := through(t, options)
	connectTo(t, open, host)
	connectTo(t, closed, host)
	connectTo(t, open, "127.0.0.1:1")
	uid.Store(2)
	connectTo(t, open, host)
	for reason, want := range map[string]float64{
		refusedRules: 1, refusedUpstream: 1, refusedForeign: 1, refusedRequest: 0, refusedTooMany: 0, refusedElsewhere: 0,
	} {
		if got := testutil.ToFloat64(metrics.WithLabelValues(reason)); got != want {
			t.Errorf("%s: %v, want %v", reason, got, want)
		}
	}
}
