package tunnel_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

// cutting is a listener whose connections can be lost.
type cutting struct {
	net.Listener
	notice string        // which ends do when a connection is lost
	over   chan struct{} // closed by end

	mu    sync.Mutex
	conns []*cuttable
}

func (l *cutting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &cuttable{Conn: conn, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

// Who notices a loss.
const (
	both      = "both notice"
	onlyRelay = "only the relay notices"
	onlyAgent = "only the agent notices"
)

// cut loses all connections so far, and returns how many there were.
func (l *cutting) cut() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.lost.Store(true)
		if l.notice != onlyRelay {
			c.Conn.Close()
		}
		c.SetDeadline(time.Unix(1, 0))
	}
	return len(l.conns)
}

// end closes what was lost without a word.
func (l *cutting) end() {
	close(l.over)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Conn.Close()
	}
}

type cuttable struct {
	net.Conn
	of   *cutting
	lost atomic.Bool
}

func (c *cuttable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.lost.Load() {
		return n, err
	}
	if c.of.notice == onlyAgent {
		<-c.of.over
	}
	return 0, errors.New("lost")
}

func (c *cuttable) Write(p []byte) (int, error) {
	switch {
	case !c.lost.Load():
		return c.Conn.Write(p)
	case c.of.notice == onlyAgent:
		return len(p), nil
	}
	return 0, errors.New("lost")
}

func (c *cuttable) Close() error {
	if c.lost.Load() && c.of.notice == onlyRelay {
		return nil
	}
	return c.Conn.Close()
}

// A besideWorld is a tunnel over QUIC at a relay that takes connections beside it.
type besideWorld struct {
	t            *testing.T
	agent, relay *tunnel.Session
	tcp          *cutting
	sockets      chan tunnel.SocketOutcome
}

func newBesideWorld(t *testing.T, notice string, carriers ...tunnel.Carrier) *besideWorld {
	w := &besideWorld{t: t, sockets: make(chan tunnel.SocketOutcome, 8)}
	listener, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		w.tcp = &cutting{Listener: c.WebSocket, notice: notice, over: make(chan struct{})}
		c.WebSocket = w.tcp
		c.Events = &tunnel.Events{Socket: func(o tunnel.SocketOutcome) { w.sockets <- o }}
	})
	t.Cleanup(w.tcp.end)
	conn, err := quiclink.Dial(within(t), cfg.Addr, cfg.TLS)
	must(t, err)
	w.agent, err = tunnel.Register(within(t), conn, by(cfg, carriers))
	must(t, err)
	t.Cleanup(func() { w.agent.Close() })
	w.relay, err = listener.Accept(within(t))
	must(t, err)
	answer(t, w.agent, echo)
	return w
}

// open opens a stream to the agent, which echoes.
func (w *besideWorld) open(lane protocol.Lane) *tunnel.Stream {
	w.t.Helper()
	stream, _, err := w.relay.Open(within(w.t), lane, protocol.Open{Kind: protocol.StreamTerminal})
	must(w.t, err)
	w.t.Cleanup(func() { stream.Close() })
	return stream
}

// carries checks that the stream echoes.
func (w *besideWorld) carries(stream *tunnel.Stream) {
	w.t.Helper()
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	go stream.Write(data) // ends with the stream
	got := make([]byte, len(data))
	_, err := io.ReadFull(stream, got)
	must(w.t, err)
	if !bytes.Equal(got, data) {
		w.t.Error("what came back is something else")
	}
}

// TestBulkBesideQUIC: bulk goes over TCP, and counts as the tunnel's.
func TestBulkBesideQUIC(t *testing.T) {
	w := newBesideWorld(t, both)
	w.carries(w.open(protocol.LaneTerminal0))
	before := w.relay.Stats()
	w.carries(w.open(protocol.LaneBulk))
	if got := <-w.sockets; got != tunnel.SocketBeside {
		t.Errorf("a socket that is %s", got)
	}
	after := w.relay.Stats()
	if n := after.Path.BytesSent - before.Path.BytesSent; n < 500_000 || after.Lanes != 2 {
		t.Errorf("%d bytes, %d lanes", n, after.Lanes)
	}
	if w.agent.Carrier() != tunnel.CarrierQUIC {
		t.Errorf("the tunnel goes over %s", w.agent.Carrier())
	}
}

// TestALostConnectionBesideQUIC: what it carried fails, the tunnel and its terminals go
// on, and the next of bulk gets through, whichever end notices first.
func TestALostConnectionBesideQUIC(t *testing.T) {
	for _, notice := range []string{both, onlyRelay, onlyAgent} {
		t.Run(notice, func(t *testing.T) {
			w := newBesideWorld(t, notice)
			answer(t, w.relay, echo)
			next := w.relay // who needs bulk next: who has noticed
			if notice == onlyAgent {
				next = w.agent
			}
			terminal, file := w.open(protocol.LaneTerminal0), w.open(protocol.LaneBulk)
			w.carries(terminal)
			w.carries(file)
			carried := w.relay.Stats().Path.BytesSent
			if n := w.tcp.cut(); n != 1 {
				t.Fatalf("%d connections", n)
			}
			if notice != onlyAgent {
				if _, err := io.ReadAll(file); err == nil {
					t.Error("the end of a lost connection is the end of a file")
				}
			}
			w.carries(terminal)
			ctx := within(t)
			for again := true; again; { // one that is opened before the loss is noticed fails
				stream, _, err := next.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamTerminal})
				switch over := errors.Join(ctx.Err(), w.agent.Err(), w.relay.Err()); {
				case err == nil:
					w.carries(stream)
					stream.Close()
					again = false
				case over != nil:
					t.Fatal(over, err)
				}
			}
			if now := w.relay.Stats().Path.BytesSent; now < carried+500_000 {
				t.Errorf("%d bytes of %d are still known", now, carried)
			}
			if over := errors.Join(w.agent.Err(), w.relay.Err()); over != nil {
				t.Error(over)
			}
		})
	}
}

// TestNothingBesideQUIC: QUIC carries bulk where TCP may not be used, or leads
// elsewhere.
func TestNothingBesideQUIC(t *testing.T) {
	t.Run("only QUIC is allowed", func(t *testing.T) {
		w := newBesideWorld(t, both, tunnel.CarrierQUIC)
		w.carries(w.open(protocol.LaneBulk))
		if n := w.tcp.cut(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		agent, relay := quicPair(t)
		answer(t, agent, echo)
		w := &besideWorld{t: t, agent: agent, relay: relay}
		w.carries(w.open(protocol.LaneBulk))
	})
	t.Run("at another relay", func(t *testing.T) {
		_, cfg := listenBoth(t, nil)
		at, err := net.ResolveTCPAddr("tcp", cfg.Addr)
		must(t, err)
		_, err = wsslink.DialBeside(within(t), cfg.Addr, at, cfg.TLS, bytes.Repeat([]byte{7}, 32))
		if protocol.KindOf(err) != protocol.KindForbidden {
			t.Error(err)
		}
	})
}
