package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
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

// A fakeRelay sells tickets, and hands each socket to a test.
type fakeRelay struct {
	*httptest.Server
	sockets chan *fakeSocket

	mu     sync.Mutex
	grants int // sold; guarded by mu
	refuse int // requests for a ticket that are answered with 401; guarded by mu
}

type fakeSocket struct {
	*websocket.Conn
	query map[string][]string
	done  chan struct{}
}

func newFakeRelay(t *testing.T) *fakeRelay {
	r := &fakeRelay{sockets: make(chan *fakeSocket)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /grants", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.grants++
		json.NewEncoder(w).Encode(map[string]any{"grant": fmt.Sprintf("grant-%d", r.grants)})
	})
	mux.HandleFunc("POST /pty-session", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refuse > 0 {
			r.refuse--
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"ws_url": "ws" + strings.TrimPrefix(r.URL, "http") + "/ws", "ticket": "t1"})
	})
	mux.HandleFunc("GET /ws", func(w http.ResponseWriter, req *http.Request) {
		conn, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: []string{protocol.SubprotocolTerminal}})
		if err != nil {
			return
		}
		s := &fakeSocket{conn, req.URL.Query(), make(chan struct{})}
		r.sockets <- s
		<-s.done
	})
	r.Server = httptest.NewServer(mux)
	t.Cleanup(r.Server.Close)
	return r
}

// next returns the next socket that is opened.
func (r *fakeRelay) next(t *testing.T) *fakeSocket {
	t.Helper()
	select {
	case s := <-r.sockets:
		t.Cleanup(func() { s.end() })
		return s
	case <-time.After(patience):
		t.Fatal("no socket was opened")
		return nil
	}
}

func (s *fakeSocket) end() {
	select {
	case <-s.done:
	default:
		s.CloseNow()
		close(s.done)
	}
}

func (s *fakeSocket) say(t *testing.T, messages ...protocol.ServerMessage) {
	t.Helper()
	for _, m := range messages {
		must(t, s.Write(t.Context(), websocket.MessageText, protocol.EncodeServerMessage(m)))
	}
}

// hear returns the next message of that kind.
func (s *fakeSocket) hear(t *testing.T, want websocket.MessageType) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		kind, data, err := s.Read(ctx)
		must(t, err)
		if kind == want {
			return data
		}
	}
}

// heard remembers what a viewer gets.
type heard struct {
	output []byte
	jumps  []Jump
	lost   int
}

func (h *heard) Output(p []byte, _ time.Time) { h.output = append(h.output, p...) }
func (h *heard) Jump(j Jump)                  { h.jumps = append(h.jumps, j) }
func (h *heard) Lost(time.Time, error)        { h.lost++ }

// watch watches a terminal, first at the first of the relays, with o's options.
func watch(t *testing.T, o Options, to Handler, relays ...*fakeRelay) *Viewer {
	t.Helper()
	var origins []string
	for _, r := range relays {
		origins = append(origins, r.URL)
	}
	user := NewUser(UserOptions{Token: "token", Session: "ses_1", Relays: origins})
	o.PTY = "pty_1"
	v := Watch(t.Context(), user, o, to)
	t.Cleanup(func() { v.Close(); user.Close() })
	return v
}

func watchFake(t *testing.T, r *fakeRelay) (*Viewer, *heard) {
	t.Helper()
	h := &heard{}
	return watch(t, Options{}, h, r), h
}

var mine = protocol.ControlState{Controller: "usr_1", You: "usr_1", Term: 7, CanControl: true, AgentState: "stopped"}

func TestViewerComesBackWithItsPositionAndInput(t *testing.T) {
	r := newFakeRelay(t)
	v, h := watchFake(t, r)
	ctx := t.Context()

	s := r.next(t)
	if s.query["since"] != nil {
		t.Errorf("a newcomer asks for %q", s.query["since"])
	}
	s.say(t, mine, protocol.Attached{Epoch: 5, Offset: 100, Mode: protocol.ModeKeyframe, KeyframeBytes: 3})
	must(t, s.Write(ctx, websocket.MessageBinary, []byte("key")))
	must(t, s.Write(ctx, websocket.MessageBinary, []byte("hello")))
	if _, err := v.AwaitJoined(ctx); err != nil {
		t.Fatal(err)
	}
	must(t, v.Type(ctx, "a", nil))
	in, err := protocol.DecodeBrowserInput(s.hear(t, websocket.MessageBinary))
	must(t, err)
	if in.Seq != 1 || in.Term != 7 || string(in.Bytes) != "a" {
		t.Errorf("input %+v", in)
	}
	must(t, v.Await(ctx, "output", func() bool { return string(h.output) == "hello" }))
	must(t, s.Close(websocket.StatusServiceRestart, ""))
	s.end()

	s = r.next(t)
	if got, want := s.query["since"][0], (protocol.Position{Epoch: 5, Offset: 105}).String(); got != want {
		t.Errorf("comes back with since %q, want %q", got, want)
	}
	s.say(t, mine, protocol.Attached{Epoch: 5, Offset: 105, Mode: protocol.ModeResume})
	again, err := protocol.DecodeBrowserInput(s.hear(t, websocket.MessageBinary))
	must(t, err)
	if again.Seq != 1 || string(again.Bytes) != "a" {
		t.Errorf("sends again %+v", again)
	}
	s.say(t, protocol.InputWritten{Seq: 1})
	must(t, v.AwaitWritten(ctx))
	must(t, s.Write(ctx, websocket.MessageBinary, []byte(" world")))
	must(t, v.Await(ctx, "output", func() bool { return string(h.output) == "hello world" }))
	if n := v.Counts(); n.Sockets != 2 || n.Gaps != 0 {
		t.Errorf("counts %+v", n)
	}
	v.Do(func() {
		if h.lost != 1 || len(h.jumps) != 2 || !h.jumps[1].Continues() {
			t.Errorf("lost %d times, jumps %+v", h.lost, h.jumps)
		}
	})
	s.say(t, protocol.PTYClosed{})
	must(t, s.Close(4004, "over"))
	select {
	case <-v.Ended():
	case <-time.After(patience):
		t.Error("the viewer of a closed terminal goes on")
	}
}

func TestViewerAcknowledges(t *testing.T) {
	r := newFakeRelay(t)
	_, _ = watchFake(t, r)
	s := r.next(t)
	s.say(t, mine, protocol.Attached{Epoch: 5, Offset: 100, Mode: protocol.ModeKeyframe, KeyframeBytes: 3})
	must(t, s.Write(t.Context(), websocket.MessageBinary, []byte("key")))
	ack := func(want uint64) {
		t.Helper()
		for {
			m, err := protocol.DecodeClientMessage(s.hear(t, websocket.MessageText))
			must(t, err)
			if m.Type != protocol.ClientAck || m.Offset > want {
				t.Errorf("says %+v, want the acknowledgement of %d", m, want)
			}
			if m.Offset >= want { // before that of a part, whose rest was long in coming
				return
			}
		}
	}
	ack(100) // the keyframe, at once
	must(t, s.Write(t.Context(), websocket.MessageBinary, make([]byte, protocol.AckBytes/2)))
	ack(100 + protocol.AckBytes/2) // half of what may be owed
	must(t, s.Write(t.Context(), websocket.MessageBinary, []byte("x")))
	ack(101 + protocol.AckBytes/2) // all, when nothing more comes
	s.say(t, protocol.Resync{Epoch: 5, Offset: 500_000, KeyframeBytes: 2})
	must(t, s.Write(t.Context(), websocket.MessageBinary, []byte("ky")))
	ack(500_000)
}

func TestViewerSendsRefusedInputAgain(t *testing.T) {
	r := newFakeRelay(t)
	v, _ := watchFake(t, r)
	s := r.next(t)
	s.say(t, mine, protocol.Attached{Epoch: 5, Mode: protocol.ModeResume})
	must(t, v.Type(t.Context(), "a", nil))
	must(t, v.Type(t.Context(), "b", nil))
	for range 2 {
		s.hear(t, websocket.MessageBinary)
	}
	s.say(t, protocol.InputDropped{Reason: protocol.RefusedBusy, Seq: 1}, protocol.InputDropped{Reason: protocol.RefusedBusy, Seq: 2})
	for _, want := range []string{"a", "b"} {
		in, err := protocol.DecodeBrowserInput(s.hear(t, websocket.MessageBinary))
		must(t, err)
		if string(in.Bytes) != want {
			t.Errorf("sends %q again, want %q", in.Bytes, want)
		}
	}
	s.say(t, protocol.InputDropped{Reason: protocol.RefusedStaleTerm, Seq: 2}, protocol.InputWritten{Seq: 1})
	if err := v.AwaitWritten(t.Context()); err == nil {
		t.Error("input of an old term counts as written")
	}
}

func TestViewerBuysAnotherGrant(t *testing.T) {
	r := newFakeRelay(t)
	r.refuse = 1
	_, _ = watchFake(t, r)
	s := r.next(t)
	s.say(t, mine)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.grants != 2 {
		t.Errorf("%d grants were bought, want another one after the first was refused", r.grants)
	}
}

func TestWaitsAreBounded(t *testing.T) {
	r := newFakeRelay(t)
	v, _ := watchFake(t, r)
	r.next(t) // says nothing
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := v.AwaitJoined(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "greeting") {
		t.Errorf("waiting for a silent relay: %v", err)
	}
}

// watched is an Observer that remembers what a command line would draw.
type watched struct {
	heard
	opened   []string
	keyframe string
	messages []string
	why      error
}

func (w *watched) Opened(relay string, j Joining) { w.opened = append(w.opened, relay) }
func (w *watched) Keyframe(p []byte, last bool)   { w.keyframe += string(p) }
func (w *watched) Message(typ string, p []byte)   { w.messages = append(w.messages, typ) }
func (w *watched) Lost(at time.Time, why error)   { w.heard.Lost(at, why); w.why = why }

func TestObserverHearsTheRest(t *testing.T) {
	r := newFakeRelay(t)
	w := &watched{}
	v := watch(t, Options{Once: true, Since: "5:9", Name: "me", Exact: true}, w, r)
	s := r.next(t)
	for key, want := range map[string]string{"since": "5:9", "client": "me", "mode": protocol.ViewExact} {
		if got := s.query[key]; len(got) != 1 || got[0] != want {
			t.Errorf("asks for %s %q, want %q", key, got, want)
		}
	}
	s.say(t, mine, protocol.Attached{Epoch: 5, Offset: 100, Mode: protocol.ModeKeyframe, KeyframeBytes: 3})
	must(t, s.Write(t.Context(), websocket.MessageBinary, []byte("key")))
	must(t, s.Write(t.Context(), websocket.MessageBinary, []byte("hello")))
	must(t, v.AwaitOffset(t.Context(), 105))
	s.say(t, protocol.Attached{Epoch: 5, Offset: 1000, Mode: protocol.ModeResume})
	select {
	case <-v.Ended():
	case <-time.After(patience):
		t.Fatal("it goes on after its only socket has ended")
	}
	want := []string{protocol.ServerControlState, protocol.ServerAttached}
	if !slices.Equal(w.opened, []string{r.URL}) || w.keyframe != "key" || string(w.output) != "hello" || !slices.Equal(w.messages, want) {
		t.Errorf("heard %+v", w)
	}
	if _, ok := errors.AsType[*ProtocolError](w.why); !ok {
		t.Errorf("a second greeting ends the socket with %v", w.why)
	}
}

func TestTypeAnywayTakesAFreeTerminal(t *testing.T) {
	r := newFakeRelay(t)
	v, _ := watchFake(t, r)
	s := r.next(t)
	free, taken := mine, mine
	free.Controller, taken.Controller = "", "usr_2"
	for seq, state := range []protocol.ControlState{free, taken} {
		s.say(t, state, protocol.InputWritten{Seq: uint64(seq)})
		if seq == 0 {
			s.say(t, protocol.Attached{Epoch: 5, Mode: protocol.ModeResume})
		}
		must(t, v.Await(t.Context(), "control", func() bool { return v.control.Controller == state.Controller && v.control.Term != 0 }))
		got, err := v.TypeAnyway(t.Context(), "a")
		must(t, err)
		in, err := protocol.DecodeBrowserInput(s.hear(t, websocket.MessageBinary))
		must(t, err)
		want := mine.Term
		if state.Controller == "" {
			want = protocol.FreeTerm(want)
		}
		if in.Seq != got || in.Term != want {
			t.Errorf("controlled by %q: sends %+v, want the term %d", state.Controller, in, want)
		}
	}
	s.say(t, protocol.InputDropped{Reason: protocol.RefusedStaleTerm, Seq: 2}, protocol.InputWritten{Seq: 1})
	refused, ok := errors.AsType[*RefusedError](v.AwaitWritten(t.Context()))
	if !ok || refused.Seq != 2 || len(v.Refused()) != 1 {
		t.Errorf("refused %+v, %v", refused, v.Refused())
	}
}

// A socket that ends with its grant is followed by one with another grant.
func TestViewerBuysAnotherGrantAfter4401(t *testing.T) {
	r := newFakeRelay(t)
	_, _ = watchFake(t, r)
	s := r.next(t)
	s.say(t, mine)
	must(t, s.Close(4401, "the grant has ended"))
	s.end()
	r.next(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.grants != 2 {
		t.Errorf("%d grants were bought, want another one for the second socket", r.grants)
	}
}
