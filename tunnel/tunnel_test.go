package tunnel_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer accepts the next stream of s and runs serve on it.
func answer(t testing.TB, s *tunnel.Session, serve func(*tunnel.Incoming, *tunnel.Stream)) {
	go func() { // ends with the session
		for {
			in, err := s.Accept(context.Background())
			if err != nil {
				return
			}
			stream, err := in.Accept(protocol.Opened{})
			if err != nil {
				return
			}
			go serve(in, stream) // ends with the session
		}
	}()
}

func echo(_ *tunnel.Incoming, stream *tunnel.Stream) {
	defer stream.Close()
	io.Copy(stream, stream)
}

func TestStreamsBothWays(t *testing.T) {
	agent, relay := tunneltest.Pair(t)
	answer(t, agent, echo)
	answer(t, relay, echo)
	for _, c := range []struct {
		from *tunnel.Session
		lane protocol.Lane
		kind protocol.StreamKind
	}{
		{relay, protocol.LaneTerminal0, protocol.StreamTerminal},
		{relay, protocol.LaneControl, protocol.StreamCommand},
		{agent, protocol.LaneControl, protocol.StreamConnect},
	} {
		stream, _, err := c.from.Open(within(t), c.lane, protocol.Open{Kind: c.kind})
		must(t, err)
		data := bytes.Repeat([]byte("0123456789"), 10_000)
		go func() {
			stream.Write(data)
			stream.CloseWrite()
		}()
		got, err := io.ReadAll(stream)
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes came back, want %d", c.kind, len(got), len(data))
		}
		stream.Close()
	}
}

func TestRefusedStream(t *testing.T) {
	agent, relay := tunneltest.Pair(t)
	go func() {
		in, err := agent.Accept(context.Background())
		if err == nil {
			in.Refuse(protocol.Fault(protocol.KindNotFound, errors.New("a secret")))
		}
	}()
	_, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	if protocol.KindOf(err) != protocol.KindNotFound || err.Error() != "not found" {
		t.Errorf("refused with %v", err)
	}
}

func TestUnansweredOpenEndsWithItsContext(t *testing.T) {
	_, relay := tunneltest.Pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := relay.Open(ctx, protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	if protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("ended with %v", err)
	}
}

func TestCloseReleasesReaders(t *testing.T) {
	agent, relay := tunneltest.Pair(t)
	answer(t, agent, func(_ *tunnel.Incoming, s *tunnel.Stream) { io.Copy(io.Discard, s) })
	stream, _, err := relay.Open(within(t), protocol.LaneControl, protocol.Open{Kind: protocol.StreamHTTP})
	must(t, err)
	read := make(chan error)
	go func() {
		_, err := stream.Read(make([]byte, 1))
		read <- err
	}()
	stream.Close()
	if err := <-read; err == nil {
		t.Error("a read went on")
	}
}

func TestSilentPeer(t *testing.T) {
	for _, c := range []struct {
		watched bool
		within  time.Duration
	}{{true, 2 * time.Second}, {false, 16 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			near, far := tunneltest.Conns()
			go func() { // a relay that welcomes and then says nothing
				control, err := far.Accept(context.Background())
				if err != nil {
					return
				}
				protocol.ReadPreface(control)
				protocol.Write(control, protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: "rl_x"})
				protocol.ReadFrame(control)
				protocol.Write(control, protocol.Welcome{Version: 1, RelayID: "rl_x"})
				io.Copy(io.Discard, control)
			}()
			agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
				Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
			})
			must(t, err)
			agent.SetWatched(c.watched)
			began := time.Now()
			<-agent.Done()
			if took := time.Since(began); took > c.within {
				t.Errorf("watched=%v: noticed after %v", c.watched, took)
			}
			agent.Close()
		})
	}
}

func TestPingsKeepAQuietTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, relay := tunneltest.Pair(t)
		relay.SetWatched(true)
		time.Sleep(time.Hour)
		if agent.Err() != nil || relay.Err() != nil {
			t.Errorf("agent: %v, relay: %v", agent.Err(), relay.Err())
		}
	})
}

func TestRefusedRegistration(t *testing.T) {
	cases := []struct {
		name  string
		hello func(*protocol.Hello)
		admit error
		want  protocol.Kind
	}{
		{"by the fleet", func(*protocol.Hello) {}, protocol.Errorf(protocol.KindForbidden, "another key"), protocol.KindForbidden},
		{"superseded", func(*protocol.Hello) {}, protocol.Errorf(protocol.KindSuperseded, "newer"), protocol.KindSuperseded},
		{"by version", func(h *protocol.Hello) { h.MinVersion, h.MaxVersion = 7, 9 }, nil, protocol.KindUnsupported},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hello := tunneltest.Hello()
				c.hello(&hello)
				_, _, err := tunneltest.Connect(hello, func(context.Context, *tunnel.Registration) error { return c.admit })
				if protocol.KindOf(err) != c.want {
					t.Errorf("refused with %v (%v)", err, protocol.KindOf(err))
				}
			})
		})
	}
}

// Who says no HELLO is gone after 5 s.
func TestCase02HelloNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := tunneltest.Conns()
		control, err := near.Open(t.Context())
		must(t, err)
		go control.Write(protocol.AppendPreface(nil, protocol.Preface{Version: 1, Lane: protocol.ControlStream}))
		go io.Copy(io.Discard, control)
		ctx, cancel := context.WithTimeout(t.Context(), protocol.HandshakeTimeout)
		defer cancel()
		began := time.Now()
		_, err = tunnel.Admit(ctx, far, &tunnel.ListenConfig{RelayID: "rl_x"})
		if err == nil || time.Since(began) > protocol.HandshakeTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		<-near.Done()
	})
}

func TestGoAwayArrivesBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, relay := tunneltest.Pair(t)
		must(t, relay.GoAway(protocol.GoAway{Reason: protocol.KindSuperseded, InstanceID: "other"}))
		relay.CloseWith(protocol.Errorf(protocol.KindSuperseded, "superseded"))
		m := <-agent.GoAways()
		if m.Reason != protocol.KindSuperseded || m.InstanceID != "other" {
			t.Errorf("GOAWAY %+v", m)
		}
		<-agent.Done()
		if protocol.KindOf(agent.Err()) != protocol.KindSuperseded {
			t.Errorf("ended with %v", agent.Err())
		}
	})
}

func TestUnexpectedControlFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := tunneltest.Conns()
		go func() {
			control, err := far.Accept(context.Background())
			if err != nil {
				return
			}
			protocol.ReadPreface(control)
			protocol.Write(control, protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: "rl_x"})
			protocol.ReadFrame(control)
			protocol.Write(control, protocol.Welcome{Version: 1, RelayID: "rl_x"})
			go io.Copy(io.Discard, control)
			control.Write([]byte{0xff, 0, 0, 0, 1, 'x'}) // may be skipped
			protocol.Write(control, protocol.Ping{ID: 7})
			protocol.Write(control, protocol.Data{Bytes: []byte("x")}) // may not
		}()
		agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
			Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
		})
		must(t, err)
		<-agent.Done()
		if protocol.KindOf(agent.Err()) != protocol.KindInvalid {
			t.Errorf("ended with %v", agent.Err())
		}
		agent.Close()
	})
}

func TestRunReconnectsWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		fatal := errors.New("fatal")
		began := time.Now()
		err := tunnel.Run(t.Context(), tunnel.RunConfig{
			Logger: discard(),
			Keeper: dialling{fatal, func(_ context.Context, addr string) (*tunnel.Session, error) {
				n := dials.Add(1)
				if addr != "a" {
					t.Errorf("dial %d goes to %s", n, addr)
				}
				if n == 50 {
					return nil, fatal
				}
				return nil, errors.New("no relay")
			}},
		})
		if !errors.Is(err, fatal) {
			t.Errorf("ended with %v", err)
		}
		// 49 pauses, most of them anything up to 5 s.
		if took := time.Since(began); took < 30*time.Second || took > 49*5*time.Second {
			t.Errorf("50 dials took %v", took)
		}
	})
}

func TestQUICReconnect(t *testing.T) {
	agent, relay := quicPair(t)
	answer(t, agent, echo)
	stream, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	must(t, pingPong(stream))
	agent.CloseWith(protocol.Errorf(protocol.KindRestarting, "bye"))
	<-relay.Done()
	if protocol.KindOf(relay.Err()) != protocol.KindRestarting {
		t.Errorf("the relay saw %v", relay.Err())
	}
}

func TestQUICRefusalReachesTheAgent(t *testing.T) {
	listener, pool := listen(t, func(context.Context, *tunnel.Registration) error {
		return protocol.Errorf(protocol.KindForbidden, "another key holds this id")
	})
	_, err := dial(t, listener, pool)
	if protocol.KindOf(err) != protocol.KindForbidden || err.Error() != "another key holds this id" {
		t.Errorf("refused with %v", err)
	}
}

func TestQUICExporterBindsTheConnection(t *testing.T) {
	seen := make(chan []byte, 1)
	listener, pool := listen(t, func(_ context.Context, r *tunnel.Registration) error {
		seen <- r.Exporter
		return nil
	})
	var mine []byte
	agent, err := tunnel.Dial(within(t), tunnel.DialConfig{
		Addr: listener.Addr().String(), TLS: &tls.Config{RootCAs: pool},
		Hello: func(_ protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			mine = exporter
			return tunneltest.Hello(), nil
		},
	})
	must(t, err)
	defer agent.Close()
	if theirs := <-seen; len(mine) != 32 || !bytes.Equal(mine, theirs) {
		t.Errorf("exporters %x and %x", mine, theirs)
	}
}

func TestQUICWrongAuthority(t *testing.T) {
	listener, _ := listen(t, nil)
	_, err := dial(t, listener, x509.NewCertPool())
	if err == nil {
		t.Fatal("an unknown authority was believed")
	}
}

func pingPong(s *tunnel.Stream) error {
	if _, err := s.Write([]byte("0123456789abcdef")); err != nil {
		return err
	}
	_, err := io.ReadFull(s, make([]byte, 16))
	return err
}

// quicPair returns the ends of a tunnel over real QUIC on loopback.
func quicPair(t testing.TB) (agent, relay *tunnel.Session) {
	t.Helper()
	listener, pool := listen(t, nil)
	agent, err := dial(t, listener, pool)
	must(t, err)
	t.Cleanup(func() { agent.Close() })
	relay, err = listener.Accept(within(t))
	must(t, err)
	return agent, relay
}

func listen(t testing.TB, admit func(context.Context, *tunnel.Registration) error) (*tunnel.Listener, *x509.CertPool) {
	t.Helper()
	if admit == nil {
		admit = func(context.Context, *tunnel.Registration) error { return nil }
	}
	cert, pool := certificate(t)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	listener, err := tunnel.Listen(tunnel.ListenConfig{
		Conn: conn, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, RelayID: "rl_test", Admit: admit,
	})
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener, pool
}

func dial(t testing.TB, l *tunnel.Listener, pool *x509.CertPool) (*tunnel.Session, error) {
	return tunnel.Dial(within(t), tunnel.DialConfig{
		Addr: l.Addr().String(), TLS: &tls.Config{RootCAs: pool},
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	})
}

func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// byCarrier runs a benchmark with a stream over each carrier on loopback.
func byCarrier(b *testing.B, lane protocol.Lane, serve func(*tunnel.Incoming, *tunnel.Stream), measure func(*testing.B, *tunnel.Stream)) {
	for _, carrier := range []tunnel.Carrier{tunnel.CarrierQUIC, tunnel.CarrierWebSocket} {
		b.Run(string(carrier), func(b *testing.B) {
			listener, cfg := listenBoth(b, nil)
			agent, err := tunnel.Dial(within(b), by(cfg, []tunnel.Carrier{carrier}))
			must(b, err)
			defer agent.Close()
			relay, err := listener.Accept(within(b))
			must(b, err)
			answer(b, agent, serve)
			stream, _, err := relay.Open(within(b), lane, protocol.Open{Kind: protocol.StreamHTTP})
			must(b, err)
			measure(b, stream)
		})
	}
}

// BenchmarkEcho times 16 bytes there and back through a terminal stream.
func BenchmarkEcho(b *testing.B) {
	byCarrier(b, protocol.LaneTerminal0, echo, func(b *testing.B, stream *tunnel.Stream) {
		for b.Loop() {
			must(b, pingPong(stream))
		}
	})
}

// BenchmarkThroughput moves bytes one way through a stream, as a terminal does and
// as a download does.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range []struct {
		lane  protocol.Lane
		piece int
	}{{protocol.LaneTerminal0, protocol.MaxStreamWrite}, {protocol.LaneBulk, 128 << 10}} {
		b.Run(string(c.lane), func(b *testing.B) {
			byCarrier(b, c.lane, func(_ *tunnel.Incoming, s *tunnel.Stream) { tunnel.Copy(io.Discard, s) }, func(b *testing.B, stream *tunnel.Stream) {
				data := make([]byte, c.piece)
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					_, err := stream.Write(data)
					must(b, err)
				}
			})
		})
	}
}
