package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// A mountain is an agent that keeps a tunnel up by tunnel.Run, to a relay that
// lets a higher generation replace a lower one, through a network that may lose
// all UDP.
type mountain struct {
	t       *testing.T
	probe   time.Duration
	quiet   time.Duration
	network *impair.UDP
	cfg     tunnel.DialConfig
	stop    context.CancelFunc
	ended   chan error

	generation atomic.Uint64
	refuse     atomic.Bool // registrations over QUIC
	onlyQUIC   atomic.Bool // is dialled, by Run
	climbs     chan error
	began      chan *tunnel.Session // served by the agent
	over       chan *tunnel.Session // no longer served
	serving    atomic.Int32
	gap        atomic.Bool // there was a time without a tunnel, after the first

	mu  sync.Mutex
	now *tunnel.Session // at the relay
}

// newMountain returns one whose agent looks for the way up every so often, and
// waits for quiet for so long.
func newMountain(t *testing.T, probe, quiet time.Duration) *mountain {
	t.Helper()
	m := &mountain{
		t: t, probe: probe, quiet: quiet, ended: make(chan error, 1), climbs: make(chan error, 100),
		began: make(chan *tunnel.Session, 100), over: make(chan *tunnel.Session, 100),
	}
	var udp net.PacketConn
	listener, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		udp, c.Conn = c.Conn, nil
		var err error
		c.Conn, err = net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		c.Admit = m.admit
	})
	udp.Close() // the network takes its place
	var err error
	m.network, err = impair.ListenUDP(impair.UDPConfig{Listen: cfg.Addr, Target: listener.Addr().String(), Seed: 1})
	must(t, err)
	t.Cleanup(func() { must(t, m.network.Close()) })
	go func() { // ends with the listener
		for {
			if _, err := listener.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	m.cfg = cfg
	m.cfg.Ladder = &tunnel.Ladder{}
	return m
}

// admit replaces the tunnel that is there by one of a higher generation, and
// says so as a relay does.
func (m *mountain) admit(_ context.Context, r *tunnel.Registration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse.Load() && r.Session.Carrier() == tunnel.CarrierQUIC {
		return protocol.Errorf(protocol.KindForbidden, "not over QUIC")
	}
	if m.now != nil {
		if r.Hello.Generation <= m.now.Hello().Generation {
			return protocol.Errorf(protocol.KindSuperseded, "not newer")
		}
		m.now.GoAway(protocol.GoAway{Reason: protocol.KindSuperseded})
		m.now.CloseWith(protocol.Errorf(protocol.KindSuperseded, "superseded"))
	}
	m.now = r.Session
	return nil
}

// relay returns the relay's end of the present tunnel.
func (m *mountain) relay() *tunnel.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// dial registers with a new generation.
func (m *mountain) dial(ctx context.Context, carriers ...tunnel.Carrier) (*tunnel.Session, error) {
	cfg := by(m.cfg, carriers)
	cfg.Hello = func(protocol.Challenge, []byte) (protocol.Hello, error) {
		h := tunneltest.Hello()
		h.Generation = m.generation.Add(1)
		return h, nil
	}
	return tunnel.Dial(ctx, cfg)
}

func (m *mountain) Next(context.Context) (string, error) { return m.cfg.Addr, nil }

func (m *mountain) Dial(ctx context.Context, _ string) (*tunnel.Session, error) {
	if m.onlyQUIC.Load() {
		return m.dial(ctx, tunnel.CarrierQUIC)
	}
	return m.dial(ctx)
}

func (*mountain) Fatal(error) bool { return false }

func (m *mountain) Probe(ctx context.Context, _ string) error { return tunnel.Probe(ctx, m.cfg) }

func (m *mountain) Climb(ctx context.Context, _ string, _ *tunnel.Session) (*tunnel.Session, error) {
	return m.dial(ctx, tunnel.CarrierQUIC)
}

// Serve stays with a tunnel until it is over.
func (m *mountain) Serve(ctx context.Context, _ string, s *tunnel.Session) error {
	m.serving.Add(1)
	m.began <- s
	go func() { // ends with the session
		for {
			in, err := s.Accept(context.Background())
			if err != nil {
				return
			}
			if stream, err := in.Accept(protocol.Opened{}); err == nil {
				go echo(in, stream) // ends with the session
			}
		}
	}()
	select {
	case <-s.Done():
	case <-ctx.Done():
	}
	if m.serving.Add(-1) == 0 {
		m.gap.Store(true)
	}
	m.over <- s
	return nil
}

// run keeps a tunnel up until the test ends.
func (m *mountain) run() {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	go func() { // the cleanup waits for it
		m.ended <- tunnel.Run(ctx, tunnel.RunConfig{
			Keeper: m, Logger: discard(),
			Climb: (&tunnel.Climb{
				Climber: m, Ladder: m.cfg.Ladder,
				Events: &tunnel.Events{Climbed: func(err error, took time.Duration) {
					if took <= 0 || took > time.Minute {
						err = errors.Join(err, fmt.Errorf("that took %s", took))
					}
					m.climbs <- err
				}},
			}).Hurry(m.probe, m.quiet),
		})
	}()
	m.t.Cleanup(func() {
		cancel()
		if err := <-m.ended; !errors.Is(err, context.Canceled) {
			m.t.Errorf("Run ended with %v", err)
		}
	})
}

// next returns the next of something.
func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-within(t).Done():
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// UDP is blocked in the middle of service: the agent is back by WebSocket. It is
// unblocked: the agent is back on QUIC, and was never without a tunnel.
func TestDownAndUpTheLadder(t *testing.T) {
	t.Parallel()
	m := newMountain(t, 100*time.Millisecond, time.Second)
	m.onlyQUIC.Store(true)
	m.run()
	next(t, "tunnel", m.began)
	m.onlyQUIC.Store(false)
	m.relay().SetWatched(true) // so that the block is noticed soon
	blocked := time.Now()
	m.network.Blackhole(impair.Duplex, true)
	second := next(t, "tunnel after the block", m.began)
	if second.Carrier() != tunnel.CarrierWebSocket {
		t.Errorf("the second tunnel is on %s", second.Carrier())
	}
	t.Logf("on WebSocket after %s", time.Since(blocked))
	next(t, "end of the first tunnel", m.over)
	stream, _, err := m.relay().Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	must(t, pingPong(stream))
	m.gap.Store(false)
	freed := time.Now()
	m.network.Blackhole(impair.Duplex, false)
	third := next(t, "tunnel after the block is over", m.began)
	if third.Carrier() != tunnel.CarrierQUIC {
		t.Errorf("the third tunnel is on %s", third.Carrier())
	}
	t.Logf("on QUIC after %s", time.Since(freed))
	if s := next(t, "end of the second tunnel", m.over); s != second || m.gap.Load() {
		t.Errorf("the one that ended is on %s; a gap: %v", s.Carrier(), m.gap.Load())
	}
	if err := <-m.climbs; err != nil {
		t.Errorf("climbed with %v", err)
	}
	stream, _, err = m.relay().Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	must(t, pingPong(stream))
}

// A relay that refuses the climb doesn't lose the agent; it tries again.
func TestClimbRefused(t *testing.T) {
	t.Parallel()
	m := newMountain(t, 20*time.Millisecond, time.Second)
	m.network.Blackhole(impair.Duplex, true)
	m.refuse.Store(true)
	m.run()
	low := next(t, "tunnel", m.began)
	m.network.Blackhole(impair.Duplex, false)
	for range 2 {
		if err := next(t, "climb", m.climbs); protocol.KindOf(err) != protocol.KindForbidden {
			t.Errorf("climbed with %v", err)
		}
	}
	select {
	case <-low.Done():
		t.Errorf("the tunnel ended: %v", low.Err())
	default:
	}
	m.refuse.Store(false)
	if high := next(t, "tunnel", m.began); high.Carrier() != tunnel.CarrierQUIC {
		t.Errorf("on %s", high.Carrier())
	}
}

// A climb waits while a page or file passes, but not for a terminal.
func TestClimbWaitsForWhatPasses(t *testing.T) {
	t.Parallel()
	m := newMountain(t, 20*time.Millisecond, time.Minute)
	m.network.Blackhole(impair.Duplex, true)
	m.run()
	next(t, "tunnel", m.began)
	var passing []*tunnel.Stream
	for lane, kind := range map[protocol.Lane]protocol.StreamKind{
		protocol.LaneTerminal0: protocol.StreamTerminal, protocol.LaneBulk: protocol.StreamHTTP, protocol.LaneControl: protocol.StreamCommand,
	} {
		stream, _, err := m.relay().Open(within(t), lane, protocol.Open{Kind: kind})
		must(t, err)
		must(t, pingPong(stream))
		if kind != protocol.StreamTerminal {
			passing = append(passing, stream)
		}
	}
	m.network.Blackhole(impair.Duplex, false)
	for _, stream := range passing {
		select {
		case <-m.began:
			t.Fatal("climbed while something passed")
		case <-time.After(300 * time.Millisecond):
		}
		must(t, stream.Close())
	}
	if high := next(t, "tunnel", m.began); high.Carrier() != tunnel.CarrierQUIC {
		t.Errorf("on %s", high.Carrier())
	}
}

// A tunnel that ends while the way up is looked for is dialled again as ever.
func TestClimbWhenTheTunnelEnds(t *testing.T) {
	t.Parallel()
	m := newMountain(t, time.Hour, time.Second)
	m.network.Blackhole(impair.Duplex, true)
	m.run()
	low := next(t, "tunnel", m.began)
	m.relay().CloseWith(protocol.Errorf(protocol.KindRestarting, "bye"))
	<-low.Done()
	next(t, "tunnel", m.began)
	select {
	case err := <-m.climbs:
		t.Errorf("climbed with %v", err)
	default:
	}
}

// With the time that climbs take in service: two looks that succeed, a second
// apart, at most 11 s after QUIC gets through.
func TestClimbPace(t *testing.T) {
	l := &tunnel.Ladder{}
	between := func(least, most time.Duration) {
		t.Helper()
		for range 100 {
			if p := l.Pause(); p < least || p > most {
				t.Fatalf("a pause of %s, not %s to %s", p, least, most)
			}
		}
	}
	silence := protocol.Errorf(protocol.KindUpstream, "tunnel: the peer is silent")
	between(9*time.Second, 11*time.Second)
	l.Ended(tunnel.CarrierQUIC, time.Second, protocol.Errorf(protocol.KindRestarting, "bye"))
	if l.HeadStart(tunnel.CarrierQUIC) != 750*time.Millisecond || l.HeadStart(tunnel.CarrierWebSocket) != 250*time.Millisecond {
		t.Error("QUIC has no longer head start after a restart")
	}
	if l.Doubt(); l.HeadStart(tunnel.CarrierQUIC) != 250*time.Millisecond {
		t.Error("QUIC was too slow and has a longer head start")
	}
	l.Ended(tunnel.CarrierWebSocket, time.Second, silence)
	between(9*time.Second, 11*time.Second)
	if l.Skip(tunnel.CarrierQUIC) {
		t.Error("QUIC is passed over for a restart")
	}
	l.Ended(tunnel.CarrierQUIC, time.Second, silence)
	between(18*time.Second, 22*time.Second)
	if !l.Skip(tunnel.CarrierQUIC) || l.Skip(tunnel.CarrierQUIC) {
		t.Error("QUIC is not passed over once after it fell silent")
	}
	for range 100 {
		l.Failed()
	}
	between(31*time.Second, 39*time.Second)
	l.Ended(tunnel.CarrierQUIC, time.Hour, silence)
	between(9*time.Second, 11*time.Second)
}
