package uplink

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// listenBoth starts a relay that takes both carriers at one port, and lets a
// higher generation replace a lower one.
func (w *world) listenBoth(id protocol.RelayID) *tunnel.Listener {
	w.t.Helper()
	var udp net.PacketConn
	var tcp net.Listener
	for udp == nil {
		var err error
		tcp, err = net.Listen("tcp", "127.0.0.1:0")
		must(w.t, err)
		if udp, err = net.ListenPacket("udp", tcp.Addr().String()); err != nil {
			udp = nil
			tcp.Close()
		}
	}
	var last *tunnel.Session // owned by Admit, which is called for one dial after the other
	return w.ca.Listen(w.t, tunnel.ListenConfig{
		Conn: udp, WebSocket: tcp, RelayID: id, Origin: originOne,
		Admit: func(_ context.Context, r *tunnel.Registration) error {
			if last != nil {
				if r.Hello.Generation <= last.Hello().Generation {
					return protocol.Errorf(protocol.KindSuperseded, "not newer")
				}
				last.GoAway(protocol.GoAway{Reason: protocol.KindSuperseded, InstanceID: r.Hello.InstanceID})
				last.CloseWith(protocol.Errorf(protocol.KindSuperseded, "superseded"))
			}
			last = r.Session
			return nil
		},
	})
}

// A tunnel over WebSocket is replaced by one over QUIC to the same relay: that
// isn't refused as a second one, takes over the role, and isn't fatal.
func TestClimb(t *testing.T) {
	w := newWorld(t)
	l := w.listenBoth("rl_1")
	w.options.Relays, w.options.Carriers = []string{l.Addr().String()}, []tunnel.Carrier{tunnel.CarrierWebSocket}
	tunnels := New(w.options)
	k := newKeeper(tunnels, anybody{}, host{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	addr, err := k.Next(ctx)
	must(t, err)
	low, err := k.Dial(ctx, addr)
	must(t, err)
	go func() { ended <- k.Serve(ctx, addr, low) }() // received below
	lower := accept(t, l)
	lower.hears(true, "")
	if low.Carrier() != tunnel.CarrierWebSocket {
		t.Errorf("the first tunnel is on %s", low.Carrier())
	}
	waitFor(t, "QUIC", func() bool { return k.Probe(ctx, addr) == nil })
	high, err := k.Climb(ctx, addr, low)
	must(t, err)
	go func() { ended <- k.Serve(ctx, addr, high) }() // received below
	upper := accept(t, l)
	upper.hears(true, "")
	if err := <-ended; err != nil {
		t.Errorf("the lower tunnel ended with %v", err)
	}
	if status := tunnels.Status(); len(status) != 1 || status[0].Carrier != tunnel.CarrierQUIC || !status[0].Primary {
		t.Errorf("relays %+v", status)
	}
	if upper.session.Hello().Generation <= lower.session.Hello().Generation {
		t.Error("no new generation")
	}
	other := w.listenBoth("rl_2")
	if _, err := k.Climb(ctx, other.Addr().String(), high); !errors.Is(err, errOtherRelay) {
		t.Errorf("a climb to another relay: %v", err)
	}
	cancel()
	must(t, <-ended)
	low.Close()
	high.Close()
}
