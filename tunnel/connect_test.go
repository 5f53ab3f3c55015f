package tunnel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A desk serves connect streams in memory, and counts what became of them.
type desk struct {
	t         *testing.T
	connector *tunnel.Connector
	serving   sync.WaitGroup
	upstreams chan net.Conn // the control plane's ends

	mu       sync.Mutex
	outcomes map[tunnel.ConnectOutcome]int // guarded by mu
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, upstreams: make(chan net.Conn, 1000), outcomes: map[tunnel.ConnectOutcome]int{}}
	d.connector = tunnel.NewConnector(tunnel.ListenConfig{Connect: d.dial, Connected: d.count})
	return d
}

func (d *desk) dial(context.Context, net.Addr) (net.Conn, error) {
	near, far := net.Pipe()
	d.upstreams <- far
	return near, nil
}

func (d *desk) count(o tunnel.ConnectOutcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outcomes[o]++
}

func (d *desk) counted(o tunnel.ConnectOutcome) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outcomes[o]
}

// A place is a connection in memory that comes from somewhere.
type place struct {
	*tunneltest.Conn
	addr net.Addr
}

func (p place) RemoteAddr() net.Addr { return p.addr }

// connect opens a connect stream from an address whose last byte is at.
func (d *desk) connect(at int) (net.Conn, error) {
	near, far := tunneltest.Conns()
	from := &net.UDPAddr{IP: net.IPv4(10, 0, byte(at>>8), byte(at)), Port: 1}
	d.serving.Go(func() { d.connector.Serve(d.t.Context(), place{far, from}) })
	return tunnel.ConnectOver(d.t.Context(), near)
}

// TestConnectOverQUIC: bytes go both ways, as many as there may be, and the
// control plane's end arrives with all of them.
func TestConnectOverQUIC(t *testing.T) {
	up, down := bytes.Repeat([]byte("up"), protocol.MaxConnectBytes/2), bytes.Repeat([]byte("down"), protocol.MaxConnectBytes/4)
	heard := make(chan []byte, 1)
	_, cfg := listenConnect(t, func(conn net.Conn) {
		got := make([]byte, len(up))
		io.ReadFull(conn, got)
		heard <- got
		conn.Write(down)
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

// listenConnect starts a relay whose control plane is serve.
func listenConnect(t *testing.T, serve func(net.Conn)) (*tunnel.Listener, tunnel.DialConfig) {
	t.Helper()
	cert, pool := certificate(t)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	var serving sync.WaitGroup
	listener, err := tunnel.Listen(tunnel.ListenConfig{
		Conn: socket, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, RelayID: "rl_test",
		Admit: func(context.Context, *tunnel.Registration) error { return nil },
		Connect: func(context.Context, net.Addr) (net.Conn, error) {
			near, far := net.Pipe()
			serving.Go(func() {
				defer far.Close()
				serve(far)
			})
			return near, nil
		},
	})
	must(t, err)
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener, tunnel.DialConfig{
		Addr: listener.Addr().String(), TLS: &tls.Config{RootCAs: pool},
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	}
}

// TestConnectBytes: one byte too many, in either direction, ends the connection
// with the kind that says so.
func TestConnectBytes(t *testing.T) {
	for _, tt := range []struct {
		what  string
		bytes int
		up    bool
		want  tunnel.ConnectOutcome
	}{
		{"up, all", protocol.MaxConnectBytes, true, tunnel.ConnectDone},
		{"up, too many", protocol.MaxConnectBytes + 1, true, tunnel.ConnectBytes},
		{"down, all", protocol.MaxConnectBytes, false, tunnel.ConnectDone},
		{"down, too many", protocol.MaxConnectBytes + 1, false, tunnel.ConnectBytes},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t)
				conn, err := d.connect(1)
				must(t, err)
				upstream := <-d.upstreams
				src, dst := conn, upstream
				if !tt.up {
					src, dst = upstream, conn
				}
				wrote := make(chan error, 1)
				go func() {
					_, err := src.Write(make([]byte, tt.bytes))
					wrote <- err
				}()
				n, err := io.CopyN(io.Discard, dst, protocol.MaxConnectBytes)
				if n != protocol.MaxConnectBytes {
					t.Errorf("%d bytes came: %v", n, err)
				}
				if tt.want == tunnel.ConnectDone {
					must(t, <-wrote)
					upstream.Close()
				}
				_, err = conn.Read(make([]byte, 1))
				if tt.want == tunnel.ConnectBytes && protocol.KindOf(err) != protocol.KindTooLarge {
					t.Errorf("the agent gets %v", err)
				}
				conn.Close()
				d.serving.Wait()
				upstream.Close()
				if d.counted(tt.want) != 1 {
					t.Errorf("outcomes %v", d.outcomes)
				}
			})
		})
	}
}

// TestConnectTime: what is open for too long is ended, however busy it is.
func TestConnectTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		began := time.Now()
		conn, err := d.connect(1)
		must(t, err)
		upstream := <-d.upstreams
		var writing sync.WaitGroup
		writing.Go(func() { // ends with the connection
			for {
				if _, err := upstream.Write([]byte{1}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		defer writing.Wait()
		_, err = io.Copy(io.Discard, conn)
		if took := time.Since(began); protocol.KindOf(err) != protocol.KindUnavailable || took != protocol.ConnectTimeout {
			t.Errorf("ended with %v after %v", err, took)
		}
		d.serving.Wait()
		if d.counted(tunnel.ConnectTime) != 1 {
			t.Errorf("outcomes %v", d.outcomes)
		}
	})
}

// TestConnectRates: no more begin than may, from one address and in all, and
// each refusal is counted with its reason.
func TestConnectRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		try := func(n int, from func(i int) int) (accepted int) {
			for i := range n {
				conn, err := d.connect(from(i))
				if err == nil {
					(<-d.upstreams).Close()
					conn.Close()
					accepted++
				} else if protocol.KindOf(err) != protocol.KindTooMany {
					t.Fatal(err)
				}
				d.serving.Wait()
			}
			return accepted
		}
		one := func(int) int { return 1 }
		if n := try(200, one); n != tunnel.AddressConnectBurst || d.counted(tunnel.ConnectAddressRate) != 200-n {
			t.Errorf("%d from one address, %v", n, d.outcomes)
		}
		others := func(i int) int { return 1000 + i }
		if n := try(200, others); n != tunnel.ConnectBurst-tunnel.AddressConnectBurst || d.counted(tunnel.ConnectRate) != 200-n {
			t.Errorf("%d from others, %v", n, d.outcomes)
		}
		time.Sleep(time.Second)
		if n := try(200, one); n != tunnel.AddressConnectPerSec {
			t.Errorf("%d from one address a second later", n)
		}
		time.Sleep(time.Second)
		if n := try(200, func(i int) int { return 2000 + i }); n != tunnel.ConnectsPerSecond {
			t.Errorf("%d from others a second later", n)
		}
	})
}

// TestConnectAddresses: who comes from many addresses doesn't fill the memory,
// and addresses that have been quiet are forgotten.
func TestConnectAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for i := range 2 * tunnel.MaxConnectAddresses {
			if conn, err := d.connect(i); err == nil {
				(<-d.upstreams).Close()
				conn.Close()
			}
			d.serving.Wait()
		}
		if n := d.connector.Addresses(); n != tunnel.MaxConnectAddresses {
			t.Errorf("%d addresses", n)
		}
		time.Sleep(10 * time.Second)
		conn, err := d.connect(65000)
		must(t, err)
		(<-d.upstreams).Close()
		conn.Close()
		d.serving.Wait()
		if n := d.connector.Addresses(); n != 1 {
			t.Errorf("%d addresses are left", n)
		}
	})
}

// TestConnectAtOnce: no more are open than may be, and a place is free again
// when one ends.
func TestConnectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		var open []net.Conn
		for i := range tunnel.MaxConnects {
			conn, err := d.connect(i)
			must(t, err)
			open = append(open, conn)
		}
		if _, err := d.connect(99); protocol.KindOf(err) != protocol.KindTooMany {
			t.Errorf("one too many: %v", err)
		}
		synctest.Wait() // it is counted after the agent has heard
		if d.counted(tunnel.ConnectBusy) != 1 {
			t.Errorf("outcomes %v", d.outcomes)
		}
		open[0].Close()
		synctest.Wait()
		conn, err := d.connect(99)
		must(t, err)
		for _, c := range append(open, conn) {
			c.Close()
		}
		d.serving.Wait()
	})
}

// TestFound13PlacesOfUnregisteredAgents: one address may have all places while
// nobody else comes, and keeps nobody out: it gives up those that carry nothing,
// to others at once, and to itself once they have been quiet for a while.
func TestFound13PlacesOfUnregisteredAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		var held []net.Conn
		for i := range tunnel.MaxConnects {
			if i%40 == 39 {
				time.Sleep(3 * time.Second) // or it would come too often
			}
			time.Sleep(time.Millisecond) // each is idle for longer than the next
			conn, err := d.connect(1)
			must(t, err)
			held = append(held, conn)
		}
		lives, upstream := held[0], <-d.upstreams // the oldest, and not idle
		says := func() error {
			go lives.Write([]byte("x")) // ends with the connection at the latest
			_, err := io.ReadFull(upstream, make([]byte, 1))
			return err
		}
		must(t, says())
		for at := range 20 { // each from an address of its own
			conn, err := d.connect(100 + at)
			if err != nil {
				t.Fatalf("address %d: %v", at, err)
			}
			held = append(held, conn)
		}
		synctest.Wait()
		if n := d.counted(tunnel.ConnectBusy); n != 20 {
			t.Errorf("%d gave way", n)
		}
		if err := says(); err != nil {
			t.Errorf("the one that was not idle: %v", err)
		}
		if _, err := held[1].Read(make([]byte, 1)); protocol.KindOf(err) != protocol.KindTooMany {
			t.Errorf("the one that was idle for longest: %v", err)
		}
		time.Sleep(2 * time.Second)
		conn, err := d.connect(1)
		if err != nil {
			t.Errorf("its own address, later: %v", err)
		} else {
			conn.Close()
		}
		for _, c := range held {
			c.Close()
		}
		d.serving.Wait()
	})
}

// TestConnectRefusals: the agent hears why.
func TestConnectRefusals(t *testing.T) {
	for _, tt := range []struct {
		dial func(context.Context, net.Addr) (net.Conn, error)
		kind protocol.Kind
		text string
		want tunnel.ConnectOutcome
	}{
		{nil, protocol.KindUnsupported, "the control plane can't be reached through this relay", tunnel.ConnectUnsupported},
		{func(context.Context, net.Addr) (net.Conn, error) {
			return nil, protocol.Fault(protocol.KindUnavailable, errors.New("10.0.0.1: a secret"))
		}, protocol.KindUnavailable, "try again later", tunnel.ConnectUnreachable},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t)
			d.connector = tunnel.NewConnector(tunnel.ListenConfig{Connect: tt.dial, Connected: d.count})
			_, err := d.connect(1)
			if protocol.KindOf(err) != tt.kind || err.Error() != tt.text {
				t.Errorf("%v", err)
			}
			d.serving.Wait()
			if d.counted(tt.want) != 1 {
				t.Errorf("outcomes %v", d.outcomes)
			}
		})
	}
}

// TestConnectIsNoTunnel: whatever an agent that isn't registered sends, and
// however many streams it opens, none becomes a lane or a registration.
func TestConnectIsNoTunnel(t *testing.T) {
	hello, err := protocol.Append(nil, tunneltest.Hello())
	must(t, err)
	said := make(chan []byte, 1)
	l, cfg := listenConnect(t, func(conn net.Conn) {
		buf := make([]byte, len(hello))
		n, _ := io.ReadFull(conn, buf)
		said <- buf[:n]
		io.Copy(io.Discard, conn)
	})
	conn, err := tunnel.Connect(within(t), cfg)
	must(t, err)
	defer conn.Close()
	_, err = conn.Write(hello) // to the control plane, who makes nothing of it
	must(t, err)
	if got := <-said; !bytes.Equal(got, hello) {
		t.Errorf("the control plane got %d bytes, want %d", len(got), len(hello))
	}
	accepted, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if s, err := l.Accept(accepted); err == nil {
		t.Errorf("it became a tunnel of %s", s.Hello().SandboxID)
	}
}

// In memory, a hostile agent opens lanes beside its connect stream.
func TestConnectOpensNoLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		near, far := tunneltest.Conns()
		d.serving.Go(func() { d.connector.Serve(t.Context(), far) })
		conn, err := tunnel.ConnectOver(t.Context(), near)
		must(t, err)
		upstream := <-d.upstreams
		for _, name := range []protocol.Lane{protocol.ControlStream, protocol.LaneControl, protocol.LaneBulk} {
			stream, err := near.Open(t.Context())
			must(t, err)
			stream.SetDeadline(time.Now().Add(time.Second))
			preface := protocol.AppendPreface(nil, protocol.Preface{Version: 1, Lane: name})
			if n, err := stream.Write(preface); err == nil || n > 0 {
				t.Errorf("somebody read the preface of %s", name)
			}
		}
		conn.Close()
		upstream.Close()
		d.serving.Wait()
	})
}

// A carrier whose owner serves no unregistered agents says so.
func TestAdmitTakesNoConnect(t *testing.T) {
	near, far := tunneltest.Conns()
	admitted := make(chan error, 1)
	go func() {
		_, err := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{RelayID: "rl_x"})
		admitted <- err
	}()
	_, err := tunnel.ConnectOver(within(t), near)
	if protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("the agent gets %v", err)
	}
	if err := <-admitted; protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("the relay gets %v", err)
	}
}

// TestConnectFloodHoldsUpNobody: agents register as ever while others that are
// not registered flood the relay, and hold every connection they get.
func TestConnectFloodHoldsUpNobody(t *testing.T) {
	l, cfg := listenConnect(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	ctx, stop := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	var refused, held atomic.Int64
	for range 4 {
		flooding.Go(func() {
			for ctx.Err() == nil {
				conn, err := tunnel.Connect(ctx, cfg)
				if err != nil {
					refused.Add(1)
					continue
				}
				held.Add(1)
				context.AfterFunc(ctx, func() { conn.Close() })
			}
		})
	}
	defer flooding.Wait()
	defer stop()
	for refused.Load() == 0 && held.Load() <= tunnel.MaxConnects { // the flood has what it can get, and gives way to itself
		select {
		case <-time.After(time.Millisecond):
		case <-within(t).Done():
			t.Fatalf("%d held, %d refused", held.Load(), refused.Load())
		}
	}
	var slowest time.Duration
	for range 10 {
		began := time.Now()
		agent, err := tunnel.Dial(within(t), cfg)
		must(t, err)
		slowest = max(slowest, time.Since(began))
		relay, err := l.Accept(within(t))
		must(t, err)
		agent.Close()
		<-relay.Done()
	}
	t.Logf("slowest registration %v beside %d connections held and %d refused", slowest, held.Load(), refused.Load())
}
