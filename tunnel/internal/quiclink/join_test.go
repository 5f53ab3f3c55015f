package quiclink

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pair returns the two ends of a connection on loopback.
func pair(t *testing.T) (agent, relay *link, listener *Listener) {
	t.Helper()
	config, roots := certificate(t)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	listener, err = Listen(socket, config, nil, nil)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	near, err := Dial(within(t), listener.Addr().String(), &tls.Config{RootCAs: roots})
	must(t, err)
	t.Cleanup(func() { near.Close(protocol.Errorf(protocol.KindUnavailable, "done")) })
	far, err := listener.Accept(within(t))
	must(t, err)
	go listener.Accept(t.Context()) // what joins needs somebody to accept; ends with the listener
	return near.(*link), far.(*link), listener
}

// speak opens a stream apart and has it say something.
func speak(t *testing.T, agent *link, words string) carrier.Stream {
	t.Helper()
	s, err := agent.OpenApart(within(t))
	must(t, err)
	_, err = io.WriteString(s, words)
	must(t, err)
	return s
}

// hear accepts a stream and expects words on it.
func hear(t *testing.T, relay *link, words string) carrier.Stream {
	t.Helper()
	s, err := relay.Accept(within(t))
	must(t, err)
	got := make([]byte, len(words))
	s.SetReadDeadline(time.Now().Add(time.Minute))
	_, err = io.ReadFull(s, got)
	must(t, err)
	if string(got) != words {
		t.Errorf("%q was said, not %q", got, words)
	}
	return s
}

func (l *link) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 1 + len(l.joined)
}

func TestStreamApart(t *testing.T) {
	agent, relay, _ := pair(t)
	agent.Join(relay.Secret())
	speak(t, agent, "apart")
	far := hear(t, relay, "apart")
	own, err := agent.Open(within(t))
	must(t, err)
	_, err = io.WriteString(own, "own")
	must(t, err)
	hear(t, relay, "own")
	if a, r := agent.connections(), relay.connections(); a != 2 || r != 2 {
		t.Errorf("%d and %d connections, not 2", a, r)
	}

	agent.Close(protocol.Errorf(protocol.KindSuperseded, "somebody else is here"))
	if _, err := far.Read(make([]byte, 1)); protocol.KindOf(err) != protocol.KindSuperseded {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestStreamApartWithoutSecret(t *testing.T) {
	agent, relay, _ := pair(t)
	speak(t, agent, "own")
	hear(t, relay, "own")
	if n := agent.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestUnknownLink: something spreads an agent's connections over several
// relays, and this one doesn't know the link.
func TestUnknownLink(t *testing.T) {
	agent, relay, listener := pair(t)
	secret := relay.Secret()
	agent.Join(secret)
	listener.mu.Lock()
	delete(listener.links, joinName(secret))
	listener.mu.Unlock()
	speak(t, agent, "own")
	hear(t, relay, "own")
	if n := agent.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestWrongSecret: who saw the name of a link on the path can't join it.
func TestWrongSecret(t *testing.T) {
	agent, relay, _ := pair(t)
	conn, err := agent.dialer.dial(within(t), joinName(relay.Secret()), 0)
	must(t, err)
	s, err := conn.OpenStreamSync(within(t))
	must(t, err)
	_, err = s.Write(make([]byte, secretBytes))
	must(t, err)
	select {
	case <-conn.Context().Done():
	case <-within(t).Done():
		t.Fatal("the connection lives on")
	}
	var app *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &app) || protocol.Kind(app.ErrorCode) != protocol.KindForbidden {
		t.Errorf("ended by %v", err)
	}
	if n := relay.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestTooManyJoin(t *testing.T) {
	agent, relay, _ := pair(t)
	agent.Join(relay.Secret())
	for range maxStreams {
		speak(t, agent, "x")
		hear(t, relay, "x")
	}
	speak(t, agent, "own") // it has to do with the link's own connection
	hear(t, relay, "own")
	if n := relay.connections(); n != 1+maxStreams {
		t.Errorf("%d connections", n)
	}
}

// TestCloseUnderAWrite: who closes a stream ends a write on it, whatever
// becomes of the connection.
func TestCloseUnderAWrite(t *testing.T) {
	agent, relay, _ := pair(t)
	go func() { // ends with the connection
		for {
			far, err := relay.Accept(t.Context())
			if err != nil {
				return
			}
			go func() {
				io.Copy(io.Discard, struct{ io.Reader }{far})
				far.Close()
			}()
		}
	}()
	for range 200 {
		s, err := agent.Open(within(t))
		must(t, err)
		writing := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			close(writing)
			for data := make([]byte, 16<<10); ; {
				if _, err := s.Write(data); err != nil {
					return
				}
			}
		}()
		<-writing
		s.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the write lasts")
		}
	}
}

func TestRepeatsWhereSomethingIsLost(t *testing.T) {
	var lost uint64
	var shared quality
	newPath := func(lost *uint64) *path {
		return &path{
			stats:   func() quic.ConnectionStats { return quic.ConnectionStats{PacketsLost: *lost} },
			quality: &shared, copies: rate.NewLimiter(repeatsPerSecond, repeatBurst),
		}
	}
	var none uint64
	p, sibling := newPath(&lost), newPath(&none)
	now := time.Now()
	if p.repeats(now) || sibling.repeats(now) {
		t.Error("repeated although nothing was lost")
	}
	lost = 3
	if p.repeats(now.Add(repeatLook / 2)) {
		t.Error("asked too often")
	}
	now = now.Add(repeatLook)
	if !p.repeats(now) || !sibling.repeats(now) {
		t.Error("not repeated after a loss")
	}
	copies := 0
	for range 1000 {
		if p.repeats(now) {
			copies++
		}
	}
	if copies != repeatBurst-1 {
		t.Errorf("%d copies at once", copies)
	}
	lost = 2 // they were late, not lost
	if now = now.Add(repeatFor - 1); !p.repeats(now) {
		t.Error("given up too soon")
	}
	if now = now.Add(1); p.repeats(now) || sibling.repeats(now) {
		t.Error("repeated long after the last loss")
	}
}

// A copy is dropped by its receiver: what is read is what was written.
func TestCopiesAreDropped(t *testing.T) {
	agent, relay, _ := pair(t)
	agent.dialer.quality.lossy.Store(time.Now().Add(time.Hour).UnixNano())
	relay.quality.lossy.Store(time.Now().Add(time.Hour).UnixNano())
	s := speak(t, agent, "a")
	far := hear(t, relay, "a")
	for i := range repeatBurst {
		for _, end := range [][2]carrier.Stream{{s, far}, {far, s}} {
			_, err := end[0].Write([]byte{byte(i)})
			must(t, err)
			got := make([]byte, 2)
			end[1].SetReadDeadline(time.Now().Add(time.Minute))
			n, err := end[1].Read(got)
			must(t, err)
			if n != 1 || got[0] != byte(i) {
				t.Fatalf("%v was read for %d", got[:n], i)
			}
		}
	}
}
