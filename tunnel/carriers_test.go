package tunnel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

var onlyWebSocket = []tunnel.Carrier{tunnel.CarrierWebSocket}

// sockets returns a UDP socket and a TCP listener of one port.
func sockets(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		if udp, err := net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			return udp, tcp
		}
		tcp.Close()
	}
}

// listenBoth listens for both carriers at one port, with a configuration that
// change completes, and returns how to dial it.
func listenBoth(t testing.TB, change func(*tunnel.ListenConfig)) (*tunnel.Listener, tunnel.DialConfig) {
	t.Helper()
	cert, pool := certificate(t)
	cfg := tunnel.ListenConfig{
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, RelayID: tunneltest.RelayID,
		Admit: func(context.Context, *tunnel.Registration) error { return nil },
	}
	cfg.Conn, cfg.WebSocket = sockets(t)
	addr := cfg.WebSocket.Addr().String()
	if change != nil {
		change(&cfg)
	}
	listener, err := tunnel.Listen(cfg)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener, tunnel.DialConfig{
		Addr: addr, TLS: &tls.Config{RootCAs: pool},
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	}
}

// by has a tunnel dialled by some carriers only.
func by(cfg tunnel.DialConfig, carriers []tunnel.Carrier) tunnel.DialConfig {
	cfg.Carriers = carriers
	return cfg
}

// An attempts counts what a dial has tried.
type attempts struct {
	mu    sync.Mutex
	tried map[tunnel.Carrier]error
}

// watchDials lets an attempts see what cfg's dials do.
func watchDials(cfg *tunnel.DialConfig) *attempts {
	a := &attempts{tried: map[tunnel.Carrier]error{}}
	cfg.Events = &tunnel.Events{Dialled: func(c tunnel.Carrier, err error, _ time.Duration) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tried[c] = err
	}}
	return a
}

func (a *attempts) of(c tunnel.Carrier) (err error, tried bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err, tried = a.tried[c]
	return err, tried
}

// A tunnel over WebSocket does what one over QUIC does.
func TestWebSocketTunnel(t *testing.T) {
	seen := make(chan []byte, 1)
	listener, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		c.Admit = func(_ context.Context, r *tunnel.Registration) error {
			seen <- r.Exporter
			return nil
		}
	})
	var mine []byte
	cfg.Hello = func(_ protocol.Challenge, exporter []byte) (protocol.Hello, error) {
		mine = exporter
		return tunneltest.Hello(), nil
	}
	agent, err := tunnel.Dial(within(t), by(cfg, onlyWebSocket))
	must(t, err)
	defer agent.Close()
	relay, err := listener.Accept(within(t))
	must(t, err)
	if theirs := <-seen; len(mine) != 32 || !bytes.Equal(mine, theirs) {
		t.Errorf("exporters %x and %x", mine, theirs)
	}
	if agent.Carrier() != tunnel.CarrierWebSocket || relay.Carrier() != tunnel.CarrierWebSocket {
		t.Errorf("carriers %s and %s", agent.Carrier(), relay.Carrier())
	}
	if len(agent.Welcome().LaneSecret) != 0 || len(relay.Welcome().LaneSecret) != 0 {
		t.Error("the lane secret is kept where it could be shown")
	}
	answer(t, agent, echo)
	answer(t, relay, echo)
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	for _, c := range []struct {
		from *tunnel.Session
		lane protocol.Lane
	}{{relay, protocol.LaneTerminal0}, {relay, protocol.LaneBulk}, {agent, protocol.LaneControl}} {
		stream, _, err := c.from.Open(within(t), c.lane, protocol.Open{Kind: protocol.StreamTerminal})
		must(t, err)
		go func() { // ends with the stream
			stream.Write(data)
			stream.CloseWrite()
		}()
		got, err := io.ReadAll(stream)
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes came back, want %d", c.lane, len(got), len(data))
		}
		stream.Close()
	}
	relay.GoAway(protocol.GoAway{Reason: protocol.KindSuperseded, Message: "go"})
	if m := <-agent.GoAways(); m.Message != "go" {
		t.Errorf("GOAWAY %v", m)
	}
	relay.CloseWith(protocol.Errorf(protocol.KindSuperseded, "a newer one"))
	<-agent.Done()
	if err := agent.Err(); protocol.KindOf(err) != protocol.KindSuperseded || !strings.Contains(err.Error(), "a newer one") {
		t.Errorf("ended with %v", err)
	}
}

// The kinds of errors survive a WebSocket in every phase.
func TestWebSocketErrors(t *testing.T) {
	listener, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		c.Admit = func(_ context.Context, r *tunnel.Registration) error {
			if r.Hello.Generation == 2 {
				return protocol.Errorf(protocol.KindForbidden, "another key holds this id")
			}
			return nil
		}
	})
	cfg = by(cfg, onlyWebSocket)
	refused := cfg
	refused.Hello = func(protocol.Challenge, []byte) (protocol.Hello, error) {
		h := tunneltest.Hello()
		h.Generation = 2
		return h, nil
	}
	if _, err := tunnel.Dial(within(t), refused); protocol.KindOf(err) != protocol.KindForbidden || err.Error() != "another key holds this id" {
		t.Errorf("refused with %v", err)
	}
	agent, err := tunnel.Dial(within(t), cfg)
	must(t, err)
	relay, err := listener.Accept(within(t))
	must(t, err)
	agent.CloseWith(protocol.Errorf(protocol.KindEnded, "the sandbox ends"))
	<-relay.Done()
	if protocol.KindOf(relay.Err()) != protocol.KindEnded {
		t.Errorf("the relay saw %v", relay.Err())
	}
	agent.Close()
	agent, err = tunnel.Dial(within(t), cfg)
	must(t, err)
	defer agent.Close()
	_, err = listener.Accept(within(t))
	must(t, err)
	listener.Close()
	<-agent.Done()
	if protocol.KindOf(agent.Err()) != protocol.KindRestarting {
		t.Errorf("the agent saw %v", agent.Err())
	}
}

// Behind a proxy there is no exporter, and the relay knows that by itself.
func TestWebSocketBehindAProxy(t *testing.T) {
	seen := make(chan []byte, 1)
	listener, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		c.WebSocket.Close()
		c.WebSocket = nil
		c.Admit = func(_ context.Context, r *tunnel.Registration) error {
			seen <- r.Exporter
			return nil
		}
	})
	proxy := httptest.NewUnstartedServer(listener.WebSocketHandler(false))
	cert, pool := certificate(t)
	proxy.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	proxy.StartTLS()
	defer proxy.Close()
	cfg.Addr, cfg.TLS.RootCAs = proxy.Listener.Addr().String(), pool
	cfg.Hello = func(_ protocol.Challenge, exporter []byte) (protocol.Hello, error) {
		if len(exporter) != 0 {
			t.Errorf("the agent signs the exporter %x", exporter)
		}
		return tunneltest.Hello(), nil
	}
	agent, err := tunnel.Dial(within(t), by(cfg, onlyWebSocket))
	must(t, err)
	agent.Close()
	if exporter := <-seen; len(exporter) != 0 {
		t.Errorf("the relay has the exporter %x", exporter)
	}
}

// An agent that isn't registered reaches the control plane too: bytes go both
// ways, and the control plane's end arrives with all of them.
func TestConnectOverWebSocket(t *testing.T) {
	up, down := bytes.Repeat([]byte("up"), protocol.MaxConnectBytes/2), bytes.Repeat([]byte("down"), protocol.MaxConnectBytes/4)
	heard := make(chan []byte, 1)
	_, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		c.Conn.Close() // UDP is refused
		c.Conn, _ = net.ListenPacket("udp", "127.0.0.1:0")
		c.Connect = func(_ context.Context, from net.Addr) (net.Conn, error) {
			if _, ok := from.(*net.TCPAddr); !ok {
				t.Errorf("it comes from %v", from)
			}
			near, far := net.Pipe()
			go func() { // ends with the pipe
				defer far.Close()
				got := make([]byte, len(up))
				io.ReadFull(far, got)
				heard <- got
				far.Write(down)
			}()
			return near, nil
		}
	})
	conn, err := tunnel.Connect(within(t), cfg)
	must(t, err)
	defer conn.Close()
	_, err = conn.Write(up)
	must(t, err)
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, down) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	if got := <-heard; !bytes.Equal(got, up) {
		t.Errorf("%d bytes went", len(got))
	}
}

// QUIC wins where it gets through, and the WebSocket isn't even tried.
func TestRaceQUICWins(t *testing.T) {
	tunnel.Patient(t)
	listener, cfg := listenBoth(t, nil)
	tries := watchDials(&cfg)
	agent, err := tunnel.Dial(within(t), cfg)
	must(t, err)
	defer agent.Close()
	relay, err := listener.Accept(within(t))
	must(t, err)
	if agent.Carrier() != tunnel.CarrierQUIC || relay.Carrier() != tunnel.CarrierQUIC {
		t.Errorf("carriers %s and %s", agent.Carrier(), relay.Carrier())
	}
	if _, tried := tries.of(tunnel.CarrierWebSocket); tried {
		t.Error("the WebSocket was dialled too")
	}
}

// Where UDP is refused, the WebSocket doesn't wait for its turn; where it
// vanishes, it does, but not until QUIC has given up. The loser is ended.
func TestRaceWebSocketWins(t *testing.T) {
	t.Parallel()
	for _, vanishes := range []bool{false, true} {
		_, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
			swallowing := c.Conn
			c.Conn, _ = net.ListenPacket("udp", "127.0.0.1:0")
			if vanishes {
				t.Cleanup(func() { swallowing.Close() })
			} else {
				swallowing.Close()
			}
		})
		tries := watchDials(&cfg)
		began := time.Now()
		agent, err := tunnel.Dial(within(t), cfg)
		must(t, err)
		took := time.Since(began)
		if agent.Carrier() != tunnel.CarrierWebSocket {
			t.Errorf("vanishes %v: carrier %s", vanishes, agent.Carrier())
		}
		if vanishes && took < 250*time.Millisecond {
			t.Errorf("vanishes %v: it took %s", vanishes, took)
		}
		if err, tried := tries.of(tunnel.CarrierQUIC); !tried || err == nil || vanishes && !errors.Is(err, context.Canceled) {
			t.Errorf("vanishes %v: QUIC ended with %v", vanishes, err)
		}
		agent.Close()
	}
}

// When neither gets there, both say why; and a context that ends ends both.
func TestRaceNobodyWins(t *testing.T) {
	t.Parallel()
	udp, tcp := sockets(t)
	cfg := tunnel.DialConfig{Addr: tcp.Addr().String(), TLS: &tls.Config{}}
	// Both are there and say nothing.
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	tries := watchDials(&cfg)
	if _, err := tunnel.Dial(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("both silent: %v", err)
	}
	for c, err := range tries.tried { // the WebSocket may not have had its turn
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("both silent: %s ended with %v", c, err)
		}
	}
	udp.Close()
	tcp.Close()
	_, err := tunnel.Dial(within(t), cfg)
	if err == nil || !strings.Contains(err.Error(), "quiclink:") || !strings.Contains(err.Error(), "wsslink:") {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := tunnel.Dial(within(t), by(cfg, []tunnel.Carrier{"pigeon"})); err == nil || !strings.Contains(err.Error(), "pigeon") {
		t.Errorf("an unknown carrier: %v", err)
	}
}

// A path that lets a QUIC handshake through and nothing of what follows makes
// the next dial prefer the WebSocket, once.
func TestHelloStallsOverQUIC(t *testing.T) {
	t.Parallel()
	_, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		mute, err := quiclink.Listen(c.Conn, c.TLS, nil, nil)
		must(t, err)
		t.Cleanup(func() { mute.Close() })
		c.Conn, err = net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
	})
	cfg.Ladder = &tunnel.Ladder{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := by(cfg, []tunnel.Carrier{tunnel.CarrierQUIC})
	first.Events = &tunnel.Events{Dialled: func(_ tunnel.Carrier, err error, _ time.Duration) {
		if err == nil { // nobody says CHALLENGE
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	}}
	if _, err := tunnel.Dial(ctx, first); err == nil || ctx.Err() == nil {
		t.Fatalf("the first dial ended with %v", err)
	}
	agent, err := tunnel.Dial(within(t), cfg)
	must(t, err)
	defer agent.Close()
	if agent.Carrier() != tunnel.CarrierWebSocket {
		t.Errorf("carrier %s", agent.Carrier())
	}
	if cfg.Ladder.Skip(tunnel.CarrierQUIC) {
		t.Error("QUIC is passed over twice")
	}
}

// What ends a race's loser and a probe is no refusal at the relay.
func TestAbandonedHandshakes(t *testing.T) {
	outcomes := make(chan tunnel.HandshakeOutcome, 8)
	_, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		c.Events = &tunnel.Events{Handshake: func(_ tunnel.Carrier, o tunnel.HandshakeOutcome, _ time.Duration) { outcomes <- o }}
	})
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for seen, late := false, within(t); !seen; {
		must(t, tunnel.Probe(within(t), cfg))
		select {
		case o := <-outcomes:
			if seen = true; o != tunnel.HandshakeAbandoned {
				t.Errorf("a probe is %q", o)
			}
		case <-again.C: // it was closed before the relay had it
		case <-late.Done():
			t.Fatal("no probe was counted")
		}
	}
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	nobody.Close()
	cfg.Addr = nobody.LocalAddr().String()
	if tunnel.Probe(within(t), cfg) == nil {
		t.Error("a probe of nobody")
	}
}
