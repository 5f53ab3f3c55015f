package fleet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/tunnel"
)

// TestTraffic: tunnels that are up are counted, and a tunnel that took the place
// of another one stays counted once.
func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.sandbox("sb_a")
		_, relay := w.mustDial(a)
		w.mustDial(w.sandbox("sb_b"))
		live := func() int {
			w.fleet.traffic.mu.Lock()
			defer w.fleet.traffic.mu.Unlock()
			return len(w.fleet.traffic.live)
		}
		if live() != 2 {
			t.Errorf("%d tunnels are counted", live())
		}
		agent, _ := w.mustDial(a.again(2, "instance2"))
		<-relay.Done()
		synctest.Wait()
		if live() != 2 {
			t.Errorf("%d tunnels are counted after one was superseded", live())
		}
		agent.Close()
		synctest.Wait()
		if live() != 1 {
			t.Errorf("%d tunnels are counted after one has ended", live())
		}
	})
}

// TestTrafficIsMonotonic: what was thought lost and comes after all makes no
// counter go back.
func TestTrafficIsMonotonic(t *testing.T) {
	traffic := newTraffic()
	traffic.ended[tunnel.CarrierQUIC] = tunnel.PathStats{PacketsLost: 5}
	traffic.read()
	traffic.ended[tunnel.CarrierQUIC] = tunnel.PathStats{PacketsLost: 3}
	if all, _, _, _ := traffic.read(); all[tunnel.CarrierQUIC].PacketsLost != 5 {
		t.Errorf("%d packets are lost, after 5 were", all[tunnel.CarrierQUIC].PacketsLost)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(traffic)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// TestTrafficByCarrier: what WebSockets carry counts as that, and not as QUIC's.
func TestTrafficByCarrier(t *testing.T) {
	traffic := newTraffic()
	traffic.ended[tunnel.CarrierQUIC] = tunnel.PathStats{BytesSent: 1, BytesReceived: 2}
	traffic.ended[tunnel.CarrierWebSocket] = tunnel.PathStats{BytesSent: 30, BytesReceived: 40}
	err := testutil.CollectAndCompare(traffic, strings.NewReader(`
# HELP fairlead_quic_bytes_total Bytes of tunnels' QUIC packets, by what became of them at this end.
# TYPE fairlead_quic_bytes_total counter
fairlead_quic_bytes_total{event="lost"} 0
fairlead_quic_bytes_total{event="received"} 2
fairlead_quic_bytes_total{event="sent"} 1
# HELP fairlead_tunnel_bytes_total Bytes that tunnels carried, by carrier and direction: of QUIC those of its packets, of WebSockets those inside TLS.
# TYPE fairlead_tunnel_bytes_total counter
fairlead_tunnel_bytes_total{carrier="quic",direction="received"} 2
fairlead_tunnel_bytes_total{carrier="quic",direction="sent"} 1
fairlead_tunnel_bytes_total{carrier="websocket",direction="received"} 40
fairlead_tunnel_bytes_total{carrier="websocket",direction="sent"} 30
`), "fairlead_quic_bytes_total", "fairlead_tunnel_bytes_total")
	if err != nil {
		t.Error(err)
	}
}

func TestQuantile(t *testing.T) {
	list := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 10 * time.Second}
	for q, want := range map[float64]float64{0.5: 3, 0.9: 10, 1: 10, 0: 1} {
		if got := quantile(list, q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("of nothing")
	}
}
