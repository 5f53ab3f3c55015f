package gateway

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/relay/internal/batchsend"
)

var opens = flag.Int("gateway.opens", 300, "how many sockets TestNoStranger opens and closes")

// secured returns both ends of a TLS connection, the first behind a gate.
func secured(t testing.TB) (near, far *tls.Conn) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed := make(chan *tls.Conn, 1)
	go func() { // received below
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
		}
		dialed <- conn
	}()
	accepted, err := tls.NewListener(Gated(listener), server.TLS).Accept()
	if err != nil {
		t.Fatal(err)
	}
	near = accepted.(*tls.Conn)
	if err := near.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	far = <-dialed
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestOffersUnderTLS: offers, by a fan-out and alone, and blocking writes arrive in
// order, however full the socket is.
func TestOffersUnderTLS(t *testing.T) {
	near, far := secured(t)
	c := newLockedConn(near, 1<<20)
	if err := c.tune(); err != nil {
		t.Fatal(err)
	}
	sender := batchsend.New(batchsend.Options{})
	defer sender.Close()
	var sent []byte
	chunk := func() []byte {
		b := bytes.Repeat([]byte{byte(len(sent) / 1000)}, 10_000)
		sent = append(sent, b...)
		return b
	}
	arena := []byte("of somebody else")
	for drained, rounds := true, 0; drained; rounds++ { // nobody reads
		if !c.begin() {
			t.Fatal("a socket that is drained takes no offer")
		}
		if rounds%2 == 0 {
			var err error
			if drained, err = c.offer([][]byte{chunk(), chunk()}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		wire, after, err := c.seal(chunk(), arena)
		if err != nil || !bytes.HasPrefix(after, arena) || len(after) != len(arena)+len(wire) {
			t.Fatalf("%d bytes of an arena of %d, %v", len(wire), len(after), err)
		}
		piece := []batchsend.Piece{{FD: c.fd, Bytes: wire}}
		sender.Send(piece)
		if piece[0].Err != nil {
			t.Fatal(piece[0].Err)
		}
		drained = c.sent(wire, piece[0].Sent)
	}
	if c.begin() {
		t.Fatal("a full socket takes an offer")
	}
	wrote := make(chan error, 1)
	last := chunk()
	go func() { wrote <- c.writeBuffers(net.Buffers{last}) }() // received below
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("other bytes arrived, %v", err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if !c.begin() || !c.sent(nil, 0) {
		t.Error("a socket that was drained takes no offer")
	}
	c.Close()
	if c.begin() {
		t.Error("a closed socket takes an offer")
	}
}

// TestLateRecords: what TLS itself writes while records are on their way goes behind
// them, whole, and so does everything later.
func TestLateRecords(t *testing.T) {
	near, far := connected(t)
	g := &gate{Conn: near}
	if !g.begin() {
		t.Fatal("an idle gate takes no offer")
	}
	g.collect(nil)
	g.Write([]byte("of the offer, "))
	wire := g.collect(nil)
	g.Write([]byte("late, "))
	if g.end(wire[3:]) { // the socket has taken 3 bytes
		t.Error("it says that nothing waits")
	}
	near.Write(wire[:3])
	if g.begin() {
		t.Error("it takes an offer, though something waits")
	}
	g.Write([]byte("later"))
	const want = "of the offer, late, later"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if !g.begin() || !g.end(nil) {
		t.Error("something waits")
	}
}

// A stamped connection is told nothing but its own number.
type stamped struct {
	*lockedConn
	stamp [8]byte
	read  chan struct{} // closed once the other end has read all
}

// stamp makes a connection and has its other end checked.
func stamp(t *testing.T, listener net.Listener, number int) *stamped {
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := &stamped{lockedConn: newLockedConn(near, 1<<20), read: make(chan struct{})}
	binary.BigEndian.PutUint64(s.stamp[:], uint64(number))
	if err := s.tune(); err != nil {
		t.Fatal(err)
	}
	go func() { // whoever closes s waits for it
		defer close(s.read)
		defer far.Close()
		var got [8]byte
		for {
			if _, err := io.ReadFull(far, got[:]); err != nil {
				return
			}
			if got != s.stamp {
				t.Errorf("socket %x got what was for %x", s.stamp, got)
			}
		}
	}()
	return s
}

// TestNoStranger: sockets close, and their descriptors are others' at once, while a
// fan-out sends to them. No byte gets to another socket.
func TestNoStranger(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sender := batchsend.New(batchsend.Options{})
	defer sender.Close()
	var conns [32]atomic.Pointer[stamped]
	for i := range conns {
		conns[i].Store(stamp(t, listener, i))
	}
	done := make(chan struct{})
	var sending sync.WaitGroup
	var sent atomic.Int64
	sending.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			runtime.Gosched()
			var pieces []batchsend.Piece
			var of []*stamped
			for i := range conns {
				if s := conns[i].Load(); s.begin() {
					pieces, of = append(pieces, batchsend.Piece{FD: s.fd, Bytes: s.stamp[:]}), append(of, s)
				}
			}
			sender.Send(pieces)
			for i, p := range pieces {
				sent.Add(int64(p.Sent))
				of[i].sent(p.Bytes, p.Sent)
			}
		}
	})
	for n := range *opens {
		next := stamp(t, listener, len(conns)+n)
		old := conns[n%len(conns)].Swap(next)
		old.Close()
		<-old.read
	}
	close(done)
	sending.Wait()
	for i := range conns {
		s := conns[i].Load()
		s.Close()
		<-s.read
	}
	if sent.Load() == 0 {
		t.Error("nothing was sent")
	}
}
