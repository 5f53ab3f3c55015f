package gateway

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

// A pipe is a connection that checks each write's deadline, and whose writes
// wait for the gate.
type pipe struct {
	net.Conn
	gate chan struct{}

	// Guarded by mu.
	mu       sync.Mutex
	deadline time.Time
	moved    int
	wrote    bytes.Buffer
}

func newPipe() *pipe {
	p := &pipe{gate: make(chan struct{})}
	close(p.gate)
	return p
}

func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	p.moved++
	return nil
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.gate
	p.mu.Lock()
	defer p.mu.Unlock()
	if !time.Now().Before(p.deadline) {
		return 0, io.ErrClosedPipe
	}
	return p.wrote.Write(b)
}

// written returns what was written so far.
func (p *pipe) written() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.wrote.Bytes())
}

func TestAStaleDeadlineEndsNoIdleSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		c := newLockedConn(p, 1<<20)
		for _, pause := range []time.Duration{0, time.Millisecond, writeTimeout, 2*writeTimeout - 1, 2 * writeTimeout, time.Hour} {
			time.Sleep(pause) // virtual
			began := time.Now()
			if err := c.writeBuffers(net.Buffers{[]byte("a"), []byte("b")}); err != nil {
				t.Fatalf("after %v: %v", pause, err)
			}
			if _, err := c.Write(pingFrame); err != nil {
				t.Fatalf("a ping after %v: %v", pause, err)
			}
			if left := p.deadline.Sub(began); left < writeTimeout || left > 2*writeTimeout {
				t.Errorf("after %v a write may take %v", pause, left)
			}
		}
		for range 1000 {
			c.Write(pingFrame)
		}
		if p.moved > 6 {
			t.Errorf("the deadline was moved %d times", p.moved)
		}
	})
}

// A ping is answered, however long the write under way takes, and whoever read
// it goes on reading.
func TestPongsWaitForTheWriteUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		p.gate = make(chan struct{})
		c := newLockedConn(p, 1<<20)
		go c.writeBuffers(net.Buffers{[]byte("data")}) // ends when the gate opens
		synctest.Wait()
		payload := []byte("1")
		c.pong(payload) // none of these waits
		payload[0] = '2'
		c.pong(payload)
		payload[0] = '3'
		c.pong(payload)
		payload[0] = 'x' // its owner uses it again
		if n := len(p.written()); n != 0 {
			t.Fatalf("%d bytes are written", n)
		}
		close(p.gate)
		synctest.Wait()
		if got, want := string(p.written()), "data\x8a\x013"; got != want {
			t.Errorf("written %q, want %q", got, want)
		}
		c.pong([]byte("again"))
		synctest.Wait()
		if got := p.written(); !bytes.HasSuffix(got, []byte("\x8a\x05again")) {
			t.Errorf("written %q", got)
		}
	})
}

// connected returns the two ends of a TCP connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	far, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// Whatever the kernel takes at once, and whoever writes next, all arrives in
// order.
func TestOffers(t *testing.T) {
	dialed, peer := connected(t)
	c := newLockedConn(dialed, 1<<20)
	if err := c.tune(); err != nil {
		t.Fatal(err)
	}
	var sent []byte
	chunk := func() []byte {
		b := bytes.Repeat([]byte{byte(len(sent) / 1000)}, 10_000)
		sent = append(sent, b...)
		return b
	}
	full := false
	for !full { // nobody reads
		if !c.begin() {
			t.Fatal("a socket that is drained takes no offer")
		}
		drained, err := c.offer(net.Buffers{chunk(), chunk()})
		if err != nil {
			t.Fatal(err)
		}
		full = !drained
	}
	if c.begin() {
		t.Fatal("a full socket takes an offer")
	}
	wrote := make(chan error, 1)
	last := chunk()
	go func() { wrote <- c.writeBuffers(net.Buffers{last}) }() // received below
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("other bytes arrived, %v", err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if !c.begin() {
		t.Fatal("a socket that was drained takes no offer")
	}
	if drained, err := c.offer(nil); !drained || err != nil {
		t.Errorf("an empty offer: %v, %v", drained, err)
	}
	c.Close()
	if c.begin() {
		t.Error("a closed socket takes an offer")
	}
}

// A large keyframe on a slow line takes as long as it takes, while it moves.
func TestALongWriteOnASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		c := newLockedConn(near, 1<<20)
		frames := net.Buffers{make([]byte, 1<<20), []byte("behind")}
		read := make(chan int)
		go func() { // received below
			n := 0
			for buf := make([]byte, 8<<10); ; { // 8 kB/s
				m, err := far.Read(buf)
				if n += m; err != nil || n == 1<<20+len("behind") {
					read <- n
					return
				}
				time.Sleep(time.Second)
			}
		}()
		if err := c.writeBuffers(frames); err != nil {
			t.Error(err)
			far.Close()
		}
		if n := <-read; n != 1<<20+len("behind") {
			t.Errorf("%d bytes arrived", n)
		}
		began := time.Now()
		if err := c.writeBuffers(net.Buffers{make([]byte, 1<<20)}); err == nil || time.Since(began) > 2*writeTimeout {
			t.Errorf("nobody reads, and after %v: %v", time.Since(began), err)
		}
	})
}

// Behind a server that watches requests, a socket's writes still go straight to
// the kernel: the fan-out lives by offers, which need the descriptor.
func TestOffersBehindTheIntake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	offers := make(chan bool, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := accept(w, r, nil, protocol.MaxBrowserMessage)
		if err != nil {
			t.Error(err)
			offers <- false
			return
		}
		defer c.ws.CloseNow()
		_, plain := c.raw.Conn.(*quiet.Conn)
		offers <- plain && c.raw.fd >= 0
	})}
	done := make(chan error, 1)
	go func() { done <- intake.Serve(server, l, nil) }()
	defer func() {
		server.Close()
		<-done
	}()
	ws, _, err := websocket.Dial(t.Context(), "ws://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if !<-offers {
		t.Error("no offers are possible")
	}
}
