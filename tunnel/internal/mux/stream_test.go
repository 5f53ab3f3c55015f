package mux

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// A gate is a connection whose reads can be stopped.
type gate struct {
	net.Conn
	mu sync.Mutex // held while it is shut
}

func (g *gate) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p[:min(len(p), 4<<10)])
	g.mu.Lock()
	defer g.mu.Unlock()
	return n, err
}

// pair returns the ends of a session, and the gate before the client's reads.
func pair(t *testing.T) (client, server *Session, g *gate) {
	t.Helper()
	near, far := net.Pipe()
	g = &gate{Conn: near}
	client, err := Client(g)
	must(t, err)
	server, err = Server(far)
	must(t, err)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server, g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// streams returns both ends of a stream that the server has opened.
func streams(t *testing.T, client, server *Session) (reads, writes *Stream) {
	t.Helper()
	writes, err := server.Open()
	must(t, err)
	reads, err = client.Accept(t.Context())
	must(t, err)
	return reads, writes
}

// When the carrier takes nothing, a write fails, and what is said again
// afterwards never gets out: it would arrive twice.
func TestStuckCarrierDuplicatesNothing(t *testing.T) {
	defer func(before time.Duration) { WriteTimeout = before }(WriteTimeout)
	WriteTimeout = time.Second // a busy machine has taken what comes before by then
	client, server, g := pair(t)
	reads, writes := streams(t, client, server)
	data := make([]byte, 8*maxPiece)
	for i := range data {
		data[i] = byte(i >> 8)
	}
	g.mu.Lock()
	written, err := writes.Write(data)
	if !errors.Is(err, ErrStuck) {
		t.Errorf("a stuck write: %v", err)
	}
	g.mu.Unlock()
	again, err := writes.Write(data[written:])
	if again != 0 || !errors.Is(err, ErrStuck) {
		t.Errorf("said again: %d bytes, %v", again, err)
	}
	writes.Reset()
	reads.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(reads)
	if !bytes.HasPrefix(data, got) {
		t.Errorf("%d bytes arrived, %d were counted, and they aren't those", len(got), written)
	}
	if !errors.Is(err, yamux.ErrConnectionReset) {
		t.Errorf("what broke off reads as whole: %v", err)
	}
	if _, err := server.Open(); err != nil && !errors.Is(err, ErrStuck) {
		t.Errorf("Open: %v", err)
	}
}

// What a closed stream still gets is forgotten when the peer closes it too, and
// a reset one at once.
func TestNothingIsKeptOfStreamsThatAreOver(t *testing.T) {
	client, server, _ := pair(t)
	for i := range 300 {
		reads, writes := streams(t, client, server)
		_, err := writes.Write(make([]byte, 1000))
		must(t, err)
		switch i % 3 {
		case 0:
			writes.Close()
			reads.Close()
		case 1:
			writes.Reset()
			reads.Close()
		case 2:
			reads.Reset()
			writes.Close()
		}
	}
	deadline := time.Now().Add(time.Minute)
	for _, s := range []*Session{client, server} {
		for f := s.guard.flows; ; <-time.After(time.Millisecond) {
			f.mu.Lock()
			open, unread := len(f.open), f.unread
			f.mu.Unlock()
			if open == 0 && unread == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d open, %d bytes unread", open, unread)
			}
		}
	}
}

// Streams that nobody reads are reset when together they hold too much; one that
// is read goes on, and so does the session.
func TestUnreadStreamsAreReset(t *testing.T) {
	client, server, _ := pair(t)
	live, writes := streams(t, client, server)
	why := make(chan ResetReason, 200)
	var all []*Stream
	for range maxUnread/Window + 4 {
		reads, full := streams(t, client, server)
		reads.OnReset(func(r ResetReason) { why <- r })
		all = append(all, full)
	}
	for _, s := range all {
		s.Write(make([]byte, Window)) // fails where the peer has reset it already
	}
	select {
	case r := <-why:
		if r != ResetUnread {
			t.Errorf("reset as %s", r)
		}
	case <-time.After(time.Minute):
		t.Error("no stream was reset")
	}
	_, err := writes.Write([]byte("still here"))
	must(t, err)
	got := make([]byte, 10)
	if _, err := io.ReadFull(live, got); err != nil || string(got) != "still here" {
		t.Errorf("%q, %v", got, err)
	}
}

// Small frames are read no faster than their rate.
func TestSmallFramesArePaced(t *testing.T) {
	frame := append(header(0, typeData, 0, 1, 1), 'x')
	const n = smallBurst + smallPerSecond/5
	in := append(header(0, typeWindow, flagSYN, 1, 0), bytes.Repeat(frame, n)...)
	g := newGuard(struct {
		io.Reader
		io.Writer
		io.Closer
	}{bytes.NewReader(in), io.Discard, io.NopCloser(nil)}, clientParity)
	began := time.Now()
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{g}, make([]byte, 4096))
	must(t, err)
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("%d small frames in %v", n, took)
	}
}

// A peer that begins a frame and doesn't go on holds its stream's reader for a
// while only, although yamux minds no deadline then.
func TestUnfinishedFrame(t *testing.T) {
	defer func(before time.Duration) { frameTimeout = before }(frameTimeout)
	frameTimeout = 200 * time.Millisecond
	near, far := net.Pipe()
	server, err := Server(near)
	must(t, err)
	defer server.Close()
	go io.Copy(io.Discard, far) // ends with the session
	_, err = far.Write(header(0, typeWindow, flagSYN, 1, 0))
	must(t, err)
	s, err := server.Accept(t.Context())
	must(t, err)
	far.Write(append(header(0, typeData, 0, 1, 100), 'x'))
	s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	s.Read(make([]byte, 1))
	<-server.Done()
	if o, ok := errors.AsType[*Objection](server.Err()); !ok || o.Reason != ReasonTruncated {
		t.Errorf("ended by %v", server.Err())
	}
}

// A session with many readers ends at once, whoever ends it.
func TestCloseWithManyReaders(t *testing.T) {
	for name, end := range map[string]func(client, server *Session){
		"here":  func(_, server *Session) { server.Close() },
		"there": func(client, _ *Session) { client.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			client, server, _ := pair(t)
			var reading sync.WaitGroup
			for range 500 {
				a, b := streams(t, client, server)
				reading.Go(func() { a.Read(make([]byte, 1)) })
				reading.Go(func() { b.Read(make([]byte, 1)) })
			}
			began := time.Now()
			end(client, server)
			reading.Wait()
			if took := time.Since(began); took > time.Minute { // or for closeTimeout each, one after the other
				t.Errorf("it took %v", took)
			}
		})
	}
}
