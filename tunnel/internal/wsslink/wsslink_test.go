package wsslink

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// Bytes arrive whole and in order, however they are cut, and the end of one
// direction leaves the other open.
func TestBytesAndHalfClose(t *testing.T) {
	w := newWorld(t)
	agent, relay, near, far := w.pair(t)
	defer agent.Close(protocol.Errorf(protocol.KindUnavailable, "done"))
	join(agent, relay)
	near2, err := agent.Open(within(t))
	must(t, err)
	far2, err := relay.Accept(within(t))
	must(t, err)
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	for i, s := range [][2]carrier.Stream{{near, far}, {far2, near2}} {
		random := mathrand.New(mathrand.NewPCG(seed, uint64(i)))
		data := make([]byte, 1<<20)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		go func() { // ends with the link
			for rest := data; len(rest) > 0; {
				n := min(1+random.IntN(100_000), len(rest))
				if _, err := s[0].Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
			s[0].Write(nil) // is no end
			s[0].(carrier.HalfCloser).CloseWrite()
		}()
		got, err := io.ReadAll(s[1])
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Fatalf("stream %d: %d bytes differ from %d", i, len(got), len(data))
		}
		if _, err := s[0].Write([]byte("x")); err == nil {
			t.Error("a write after the end of the direction")
		}
		_, err = s[1].Write([]byte("back"))
		must(t, err)
		answer := make([]byte, 4)
		if _, err := io.ReadFull(s[0], answer); err != nil || string(answer) != "back" {
			t.Errorf("after the half close came %q, %v", answer, err)
		}
		if n, err := s[1].Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a second read at the end: %d, %v", n, err)
		}
	}
}

// Either end's Close tells the other one the kind and the message, cut to fit.
func TestCloseTellsWhy(t *testing.T) {
	long := strings.Repeat("ä", 100)
	for _, fromRelay := range []bool{true, false} {
		w := newWorld(t)
		agent, relay, near, far := w.pair(t)
		closing, other, stream := relay, agent, near
		if !fromRelay {
			closing, other, stream = agent, relay, far
		}
		closing.Close(protocol.Errorf(protocol.KindSuperseded, "%s", long))
		closing.Close(protocol.Errorf(protocol.KindInternal, "too late"))
		err := over(t, other)
		want := "peer: " + strings.Repeat("ä", maxReason/2)
		if protocol.KindOf(err) != protocol.KindSuperseded || err.Error() != want {
			t.Errorf("from relay %v: ended with %v", fromRelay, err)
		}
		if _, err := stream.Read(make([]byte, 1)); protocol.KindOf(err) != protocol.KindSuperseded {
			t.Errorf("from relay %v: a read ended with %v", fromRelay, err)
		}
		if err := over(t, closing); protocol.KindOf(err) != protocol.KindSuperseded {
			t.Errorf("from relay %v: the closing end has %v", fromRelay, err)
		}
		if _, err := closing.Accept(within(t)); err == nil {
			t.Error("Accept of a link that is over")
		}
	}
}

// A peer that reads nothing blocks the writer of that stream and nothing else,
// and doesn't hold up the end.
func TestBlockedWriter(t *testing.T) {
	w := newWorld(t)
	agent, relay, near, far := w.pair(t)
	join(agent, relay)
	slow, err := agent.Open(within(t))
	must(t, err)
	_, err = relay.Accept(within(t))
	must(t, err)
	stuck := make(chan error)
	go func() { // until the link ends
		for {
			if _, err := slow.Write(make([]byte, 1<<20)); err != nil {
				stuck <- err
				return
			}
		}
	}()
	for range 100 {
		_, err := near.Write([]byte("key"))
		must(t, err)
		_, err = io.ReadFull(far, make([]byte, 3))
		must(t, err)
	}
	sent := func() uint64 { return agent.(carrier.Counting).Stats().BytesSent }
	for before := ^uint64(0); sent() != before; <-time.After(20 * time.Millisecond) { // until nothing more is taken
		before = sent()
	}
	began := time.Now()
	agent.Close(protocol.Errorf(protocol.KindRestarting, "bye"))
	if took := time.Since(began); took > closingTime+time.Minute { // it would wait for ever
		t.Errorf("Close took %s", took)
	}
	if err := <-stuck; protocol.KindOf(err) != protocol.KindRestarting {
		t.Errorf("the blocked write ended with %v", err)
	}
	if err := over(t, relay); protocol.KindOf(err) != protocol.KindRestarting {
		t.Errorf("the relay's end has %v", err)
	}
}

// A connection that is lost ends the link, at both ends and whichever socket it
// was.
func TestLostConnection(t *testing.T) {
	for _, first := range []bool{true, false} {
		w := newWorld(t)
		agent, relay, near, _ := w.pair(t)
		join(agent, relay)
		lane, err := agent.Open(within(t))
		must(t, err)
		if first {
			lane = near
		}
		lane.(*socket).raw.Close()
		over(t, agent)
		over(t, relay)
	}
}

// A connection that is lost in the middle of a message isn't the end of a
// stream.
func TestTornMessage(t *testing.T) {
	for _, frame := range [][]byte{{0x82}, {0x82, 0x85}, {0x82, 0x85, 1, 2, 3, 4}, {0x82, 0x85, 1, 2, 3, 4, 5}} {
		w := newWorld(t)
		_, relay, near, far := w.pair(t)
		raw := near.(*socket).raw
		_, err := raw.Write(frame)
		must(t, err)
		raw.Close()
		if got, err := io.ReadAll(far); err == nil {
			t.Errorf("%x: read %x to its end", frame, got)
		}
		over(t, relay)
	}
}

// The end of a stream isn't the end of the link, except for the first one's.
func TestStreamClose(t *testing.T) {
	w := newWorld(t)
	agent, relay, near, far := w.pair(t)
	join(agent, relay)
	lane, err := agent.Open(within(t))
	must(t, err)
	other, err := relay.Accept(within(t))
	must(t, err)
	_, err = lane.Write([]byte("last"))
	must(t, err)
	must(t, lane.Close())
	got, err := io.ReadAll(other)
	if err != nil || string(got) != "last" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := lane.Read(make([]byte, 1)); err == nil {
		t.Error("a read of a closed stream")
	}
	_, err = near.Write([]byte("on"))
	must(t, err)
	_, err = io.ReadFull(far, make([]byte, 2))
	must(t, err)
	must(t, near.Close())
	over(t, relay)
	over(t, agent)
}

// A deadline that passes ends the link; one that is taken back doesn't.
func TestDeadline(t *testing.T) {
	w := newWorld(t)
	agent, _, near, far := w.pair(t)
	must(t, far.SetDeadline(time.Now().Add(time.Hour)))
	must(t, far.SetDeadline(time.Time{}))
	_, err := near.Write([]byte("x"))
	must(t, err)
	_, err = far.Read(make([]byte, 1))
	must(t, err)
	must(t, far.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read ended with %v", err)
	}
	over(t, agent)
	if far.SetDeadline(time.Time{}) == nil {
		t.Error("a deadline of a socket that is over")
	}
}

// Lanes are for who has the secret of a tunnel that lives, and not too many.
func TestLaneSecret(t *testing.T) {
	w := newWorld(t)
	agent, relay, _, _ := w.pair(t)
	if _, err := agent.Open(within(t)); protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("without a secret: %v", err)
	}
	if _, err := relay.Open(within(t)); protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("the relay opened: %v", err)
	}
	secret := relay.(carrier.Joiner).Secret()
	if again := relay.(carrier.Joiner).Secret(); len(secret) != secretBytes || !bytes.Equal(again, secret) {
		t.Errorf("secrets of %d and %d bytes", len(secret), len(again))
	}
	wrong := bytes.Clone(secret)
	wrong[31] ^= 1
	for _, bad := range [][]byte{wrong, secret[:31], make([]byte, secretBytes)} {
		agent.(carrier.Joiner).Join(bad)
		if _, err := agent.Open(within(t)); protocol.KindOf(err) != protocol.KindForbidden {
			t.Errorf("with a wrong secret: %v", err)
		}
	}
	agent.(carrier.Joiner).Join(secret)
	for range maxSockets - 1 {
		_, err := agent.Open(within(t))
		must(t, err)
	}
	if _, err := agent.Open(within(t)); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("one socket too many: %v", err)
	}
	for o, n := range map[Outcome]int{Many: 1, Lane: maxSockets - 1, First: 1, Secret: 3} {
		w.awaits(t, o, n)
	}
	if w.counted(Secret) != 3 || w.counted(Lane) != maxSockets-1 || w.counted(Many) != 1 || w.counted(First) != 1 {
		t.Errorf("counted %v", w.outcomes)
	}
	second, _, _, _ := w.pair(t)
	relay.Close(protocol.Errorf(protocol.KindSuperseded, "over"))
	second.(carrier.Joiner).Join(secret)
	if _, err := second.Open(within(t)); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("with the secret of a tunnel that is over: %v", err)
	}
	w.Listener.mu.Lock()
	defer w.Listener.mu.Unlock()
	if len(w.secrets) != 0 {
		t.Errorf("%d secrets are kept", len(w.secrets))
	}
}

// request makes the handshake of RFC 6455 by hand.
func (w *world) request(t *testing.T, header http.Header, subprotocol ...string) (*websocket.Conn, int) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: w.tls.Clone(), DisableKeepAlives: true}
	ws, response, err := websocket.Dial(within(t), "wss://"+w.addr+Path, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, Subprotocols: subprotocol,
	})
	if err != nil {
		if response == nil {
			return nil, 0
		}
		return nil, response.StatusCode
	}
	return ws, http.StatusSwitchingProtocols
}

// What isn't an agent is refused, with the reason counted.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name, header, value string
		status              int
		outcome             Outcome
	}{
		{"a browser", "Origin", "https://" + w.addr, http.StatusForbidden, Origin},
		{"an empty origin", "Origin", "", http.StatusForbidden, Origin},
		{"a bad secret", secretHeader, "x", http.StatusForbidden, Secret},
		{"an unknown secret", secretHeader, strings.Repeat("A", 43), http.StatusForbidden, Secret},
	} {
		before := w.counted(c.outcome)
		if _, status := w.request(t, http.Header{c.header: {c.value}}, Subprotocol); status != c.status || w.counted(c.outcome) != before+1 {
			t.Errorf("%s: %d, counted %v", c.name, status, w.outcomes)
		}
	}
	if ws, _ := w.request(t, http.Header{}, "something.1"); ws != nil {
		if _, _, err := ws.Read(within(t)); err == nil {
			t.Error("another subprotocol is spoken")
		}
		ws.CloseNow()
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: w.tls.Clone(), DisableKeepAlives: true}}
	for path, status := range map[string]int{"/": 404, "/tunnel/": 404, "/tunnel": http.StatusUpgradeRequired} {
		response, err := client.Get("https://" + w.addr + path)
		must(t, err)
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("GET %s: %d", path, response.StatusCode)
		}
	}
}

// A peer that sends what no agent sends loses its link.
func TestHostileMessages(t *testing.T) {
	w := newWorld(t)
	for name, send := range map[string]func(*websocket.Conn) error{
		"text": func(c *websocket.Conn) error {
			return c.Write(context.Background(), websocket.MessageText, []byte("x"))
		},
		"too large": func(c *websocket.Conn) error {
			return c.Write(context.Background(), websocket.MessageBinary, make([]byte, maxMessage+1))
		},
		"a lie": func(c *websocket.Conn) error { return c.Close(4999, "unknown") },
	} {
		ws, status := w.request(t, http.Header{}, Subprotocol)
		if ws == nil {
			t.Fatalf("%s: %d", name, status)
		}
		relay, err := w.Accept(within(t))
		must(t, err)
		far, err := relay.Accept(within(t))
		must(t, err)
		go io.Copy(io.Discard, far) // ends with the link
		send(ws)
		over(t, relay)
		ws.CloseNow()
	}
}

// Both ends have the same exporter where TLS ends at the relay, and both know
// that there is none behind a proxy.
func TestExporter(t *testing.T) {
	w := newWorld(t)
	agent, relay, _, _ := w.pair(t)
	mine, err := agent.Exporter()
	must(t, err)
	its, err := relay.Exporter()
	must(t, err)
	if len(mine) != exporterBytes || !bytes.Equal(mine, its) {
		t.Errorf("exporters %x and %x", mine, its)
	}

	proxied := httptest.NewUnstartedServer(w.Handler(false))
	server, client := certificate(t)
	server.NextProtos = []string{"http/1.1"}
	proxied.TLS = server
	proxied.StartTLS()
	t.Cleanup(proxied.Close)
	agent, err = Dial(within(t), proxied.Listener.Addr().String(), client)
	must(t, err)
	relay, err = w.Accept(within(t))
	must(t, err)
	for _, conn := range []carrier.Conn{agent, relay} {
		if exporter, err := conn.Exporter(); err != nil || exporter != nil {
			t.Errorf("behind a proxy: %x, %v", exporter, err)
		}
	}
}

// An agent dials only relays it can verify, and says what else went wrong.
func TestDialFailures(t *testing.T) {
	w := newWorld(t)
	_, stranger := certificate(t)
	if _, err := Dial(within(t), w.addr, stranger); err == nil {
		t.Error("a relay of another authority")
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed.Close()
	if _, err := Dial(within(t), closed.Addr().String(), w.tls); err == nil {
		t.Error("nobody listens there")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, silent.Addr().String(), w.tls); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent relay: %v", err)
	}
	server, client := certificate(t)
	for status, kind := range map[int]protocol.Kind{
		http.StatusTooManyRequests: protocol.KindTooMany, http.StatusNotFound: protocol.KindNotFound,
		http.StatusFound: protocol.KindInternal,
	} {
		site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://127.0.0.1:1/")
			w.WriteHeader(status)
		}))
		site.TLS = server.Clone()
		site.StartTLS()
		if _, err := Dial(within(t), site.Listener.Addr().String(), client); protocol.KindOf(err) != kind {
			t.Errorf("status %d: %v", status, err)
		}
		site.Close()
	}
}

// A connection has a slot until it is a WebSocket, or over; a request that is
// refused is its last.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	becomes := func(n int) {
		t.Helper()
		for ctx := within(t); w.waits(0) != n; runtime.Gosched() {
			if ctx.Err() != nil {
				t.Fatalf("%d slots are taken, want %d", w.waits(0), n)
			}
		}
	}
	silent, err := net.Dial("tcp", w.addr)
	must(t, err)
	defer silent.Close()
	becomes(1)
	w.pair(t)
	becomes(1)
	stranger, err := tls.Dial("tcp", w.addr, w.tls)
	must(t, err)
	defer stranger.Close()
	becomes(2)
	_, err = io.WriteString(stranger, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(stranger), nil)
	must(t, err)
	response.Body.Close()
	if !response.Close {
		t.Errorf("what is refused may be followed by more: %v", response.Header)
	}
	silent.Close()
	becomes(0)
}

// The end of the Listener is heard.
func TestListenerClose(t *testing.T) {
	w := newWorld(t)
	agent, _, _, _ := w.pair(t)
	must(t, w.Close())
	if err := over(t, agent); protocol.KindOf(err) != protocol.KindRestarting {
		t.Errorf("ended with %v", err)
	}
	if _, err := w.Accept(within(t)); err == nil {
		t.Error("Accept went on")
	}
	if _, err := Dial(within(t), w.addr, &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("a connection after the end")
	}
}
