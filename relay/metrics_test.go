package relay

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// TestRequestsToTheControlPlane: each is counted by what it is for and how it
// ended, and no path is a label.
func TestRequestsToTheControlPlane(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == revocationsPath {
			panic(http.ErrAbortHandler) // an answer of nobody
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	m := newMetrics(prometheus.NewRegistry())
	client := &http.Client{Transport: &meteredTransport{http.DefaultTransport, m}}
	ask := func(path string, answer int) {
		t.Helper()
		status = answer
		resp, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	ask("/base"+keysPath, 200)
	ask("/internal/relays/rl_1", 200)
	ask("/internal/sign", 403)
	ask("/internal/callback", 502)
	ask("/whatever/somebody/asks", 404)
	if _, err := client.Get(server.URL + revocationsPath); err == nil {
		t.Error("an answer of nobody")
	}
	for _, want := range []struct{ what, outcome string }{
		{forKeys, requestOK}, {forRegister, requestOK}, {forSign, requestRefused}, {forCallback, requestFailed},
		{forOther, requestRefused}, {forRevocations, requestFailed},
	} {
		if n := testutil.ToFloat64(m.requests.WithLabelValues(want.what, want.outcome)); n != 1 {
			t.Errorf("%s, %s: %v", want.what, want.outcome, n)
		}
	}
	if n := testutil.CollectAndCount(m.requests); n != len(purposes)*3 {
		t.Errorf("%d series", n)
	}
}

// TestTunnelsAreCounted: what tunnels say ends up in the metrics, and closed ones
// are not there any more.
func TestTunnelsAreCounted(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	events := m.events()
	events.Opened(tunnel.CarrierQUIC)
	events.Opened(tunnel.CarrierWebSocket)
	events.Closed(tunnel.CarrierQUIC, protocol.KindSuperseded, time.Minute)
	events.Handshake(tunnel.CarrierQUIC, tunnel.HandshakeRegistered, time.Millisecond)
	events.Handshake(tunnel.CarrierQUIC, tunnel.HandshakeRate, time.Second)
	events.Socket(tunnel.SocketOrigin)
	events.Objected(tunnel.Objections()[0])
	events.Reset(tunnel.Resets()[0])
	events.Waited(time.Second)
	for _, tt := range []struct {
		c    prometheus.Collector
		want float64
	}{
		{m.tunnels.WithLabelValues("quic"), 0}, {m.tunnels.WithLabelValues("websocket"), 1},
		{m.closed.WithLabelValues("quic", "superseded"), 1}, {m.handshakes.WithLabelValues("quic", "rate"), 1},
		{m.sockets.WithLabelValues("origin"), 1}, {m.objections.WithLabelValues(tunnel.Objections()[0]), 1},
		{m.resets.WithLabelValues(tunnel.Resets()[0]), 1},
	} {
		if got := testutil.ToFloat64(tt.c); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}

// TestStateOfARelay: one that hasn't begun isn't ready.
func TestStateOfARelay(t *testing.T) {
	r := assemble(Config{})
	if err := r.notReady(); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Errorf("ready: %v", err)
	}
	if n, err := testutil.GatherAndCount(r.registry, "fairlead_relay_ready", "fairlead_relay_registered"); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
