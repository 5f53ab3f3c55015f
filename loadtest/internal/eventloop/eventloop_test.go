package eventloop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what takes a moment.
const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newLoop(t *testing.T) *Loop {
	t.Helper()
	l, err := New(nil)
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// heard is a receiver that tells a test.
type heard struct {
	got   chan []byte
	swept chan struct{} // one element
	ended chan error    // one element
}

func newHeard() *heard {
	return &heard{make(chan []byte, 16), make(chan struct{}, 1), make(chan error, 1)}
}

var errEnough = errors.New("enough")

func (h *heard) Received(p []byte, _ time.Time) error {
	h.got <- bytes.Clone(p)
	if bytes.HasSuffix(p, []byte("!")) {
		return errEnough
	}
	return nil
}

func (h *heard) Swept(time.Time) {
	select {
	case h.swept <- struct{}{}:
	default:
	}
}

func (h *heard) Ended(why error) { h.ended <- why }

func (h *heard) next(t *testing.T) string {
	t.Helper()
	return string(receive(t, h.got))
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

// adopted returns a link of the loop's and the other end of its connection.
func adopted(t *testing.T, by client.Transport, to client.Receiver) (client.Link, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	far, err := listener.Accept()
	must(t, err)
	t.Cleanup(func() { far.Close() })
	link, err := by.Adopt(conn.(*net.TCPConn), to)
	must(t, err)
	return link, far
}

func TestBytesGoBothWays(t *testing.T) {
	h := newHeard()
	link, far := adopted(t, newLoop(t), h)
	must(t, link.Begin([]byte("early")))
	if got := h.next(t); got != "early" {
		t.Errorf("got %q first", got)
	}
	_, err := far.Write([]byte("late"))
	must(t, err)
	if got := h.next(t); got != "late" {
		t.Errorf("got %q then", got)
	}
	receive(t, h.swept)
	must(t, link.Write([]byte("back")))
	var back [4]byte
	if _, err := io.ReadFull(far, back[:]); err != nil || string(back[:]) != "back" {
		t.Errorf("the far end got %q, %v", back, err)
	}
	link.Close()
	if why := receive(t, h.ended); !errors.Is(why, net.ErrClosed) {
		t.Errorf("ended with %v", why)
	}
	if err := link.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
}

func TestEveryEndIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		early string
		do    func(far net.Conn)
		want  error
	}{
		"of the peer":                   {"", func(far net.Conn) { far.Close() }, io.EOF},
		"by the receiver":               {"", func(far net.Conn) { _, _ = far.Write([]byte("that is it!")) }, errEnough},
		"by the receiver, at once":      {"that is it!", func(net.Conn) {}, errEnough},
		"of a connection that was open": {"some", func(far net.Conn) { far.Close() }, io.EOF},
	} {
		h := newHeard()
		link, far := adopted(t, newLoop(t), h)
		if err := link.Begin([]byte(test.early)); (err != nil) != (test.early != "" && test.want == errEnough) {
			t.Errorf("%s: begin: %v", name, err)
		}
		test.do(far)
		if why := receive(t, h.ended); !errors.Is(why, test.want) {
			t.Errorf("%s: ended with %v, want %v", name, why, test.want)
		}
	}
}

func TestALoopEndsWithItsSockets(t *testing.T) {
	l, err := New(nil)
	must(t, err)
	h := newHeard()
	link, _ := adopted(t, l, h)
	must(t, link.Begin(nil))
	l.Close()
	if why := receive(t, h.ended); !errors.Is(why, errLoopClosed) {
		t.Errorf("ended with %v", why)
	}
}

// A peer that takes nothing has so much kept for it, and no more; when it takes
// again it gets every byte.
func TestWhatAPeerDoesntTakeIsBounded(t *testing.T) {
	h := newHeard()
	link, far := adopted(t, newLoop(t), h)
	must(t, link.Begin(nil))
	piece := bytes.Repeat([]byte("0123456789abcdef"), 1<<10)
	sent := 0
	for {
		err := link.Write(piece)
		if errors.Is(err, client.ErrDeaf) {
			break
		}
		must(t, err)
		if sent += len(piece); sent > 64<<20 {
			t.Fatal("there is no bound")
		}
	}
	must(t, far.SetReadDeadline(time.Now().Add(patience)))
	got, err := io.ReadAll(io.LimitReader(far, int64(sent)))
	must(t, err)
	if len(got) != sent || !bytes.Equal(got, bytes.Repeat(piece, sent/len(piece))) {
		t.Errorf("%d of %d bytes came, or others", len(got), sent)
	}
	link.Close()
}

// viewer is a [client.Handler] that counts.
type viewer struct{ bytes int }

func (v *viewer) Output(p []byte, _ time.Time) { v.bytes += len(p) }
func (v *viewer) Jump(client.Jump)             {}
func (v *viewer) Lost(time.Time, error)        {}

func TestSlowReaderTakesItsRateOnly(t *testing.T) {
	const rate = 64 << 10
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for conn.Write(req.Context(), websocket.MessageBinary, make([]byte, 16<<10)) == nil {
		}
	}))
	defer server.Close()
	h := &viewer{}
	v := client.Watch(t.Context(), client.NewUser(client.UserOptions{}), client.Options{
		URL: "ws" + strings.TrimPrefix(server.URL, "http"), Transport: newLoop(t).Limited(rate), Dial: Dialer(4 << 10),
	}, h)
	defer v.Close()
	began := time.Now()
	must(t, v.Await(t.Context(), "output", func() bool { return h.bytes > rate/2 }))
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("half of a second's bytes came after %v", took)
	}
}

// A loop that gathers reads in one piece what was written in several, and later
// than it came at most.
func TestGathering(t *testing.T) {
	const every = 50 * time.Millisecond
	l, err := NewGathering(nil, every)
	must(t, err)
	t.Cleanup(l.Close)
	h := newHeard()
	link, far := adopted(t, l, h)
	must(t, link.Begin(nil))
	_, err = far.Write([]byte("first"))
	must(t, err)
	h.next(t)
	began := time.Now() // it has just looked
	for _, piece := range []string{"a", "b", "c"} {
		_, err := far.Write([]byte(piece))
		must(t, err)
	}
	got := h.next(t)
	if took := time.Since(began); len(got) < 3 && took < every/2 { // a slow writer's pieces may come apart
		t.Errorf("got %q alone after %v", got, took)
	}
}
