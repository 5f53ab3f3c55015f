package hub

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) {
	keyframeWait, openTimeout, grantWait = patience, patience, patience
	goleak.VerifyTestMain(relaytest.Patient(m))
}

// patience bounds what would hang if it failed.
const patience = time.Minute

var testKey = Key{Sandbox: relaytest.Sandbox, Session: relaytest.Session, PTY: relaytest.PTY}

// held returns the lease under which usr_alice has control.
func held(revision, term uint64) protocol.Lease {
	return protocol.Lease{Revision: revision, Term: term, Holder: relaytest.User, GrantID: "gr_alice", State: protocol.LeaseHeld}
}

func free(revision uint64) protocol.Lease {
	return protocol.Lease{Revision: revision, State: protocol.LeaseFree}
}

// A world is a set of hubs and one sandbox, whose terminal a test plays.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	tunnels   *relaytest.Tunnels
	set       *Set
	attaches  chan *attach
	agent     *tunnel.Session // the sandbox's end of its last tunnel

	// Guarded by mu.
	mu    sync.Mutex
	open  func(o protocol.Open, p protocol.TerminalParams) (protocol.TerminalOpened, error)
	takes func(m protocol.GrantAdd) *protocol.Granted      // answers GRANT; nil: all are taken
	log   func(in *tunnel.Incoming, p protocol.ReadParams) // serves READ
}

func newWorld(t *testing.T, opened protocol.TerminalOpened) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}, attaches: make(chan *attach, 64)}
	w.opens(opened, nil)
	w.set = NewSet(w.tunnels, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.set.Close(ctx)
		if ctx.Err() != nil {
			t.Error("the set didn't close")
		}
	})
	w.connect()
	return w
}

// connect gives the sandbox a new tunnel.
func (w *world) connect() {
	agent, relay := tunneltest.Pair(w.t)
	w.agent = agent
	w.tunnels.Connect(relay)
	relaytest.Answer(w.t, agent, w.answer)
}

// opens says what the sandbox answers to OPEN from now on. Of opened, missing
// sizes are filled in.
func (w *world) opens(opened protocol.TerminalOpened, err error) {
	if opened.Cols == 0 {
		opened.Cols, opened.Rows = 80, 24
	}
	if opened.Lease.State == "" {
		opened.Lease = free(1)
	}
	w.opensWith(func(protocol.Open, protocol.TerminalParams) (protocol.TerminalOpened, error) { return opened, err })
}

func (w *world) opensWith(open func(protocol.Open, protocol.TerminalParams) (protocol.TerminalOpened, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = open
}

// answer is the sandbox: it reads what the hub says.
func (w *world) answer(in *tunnel.Incoming) {
	if in.Open.Kind == protocol.StreamRead {
		w.serveLog(in)
		return
	}
	var params protocol.TerminalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		w.t.Errorf("params of OPEN: %v", err)
	}
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	opened, err := open(in.Open, params)
	if err != nil {
		in.Refuse(err)
		return
	}
	result, err := json.Marshal(opened)
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	a := &attach{t: w.t, params: params, world: w, grant: in.Open.Grant, stream: stream, heard: make(chan protocol.Message, 4096)}
	defer close(a.heard)
	w.attaches <- a
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			w.t.Errorf("from the hub: %v", err)
			return
		}
		if in, ok := m.(protocol.Input); ok { // aliases the reader's buffer
			in.Bytes = append([]byte(nil), in.Bytes...)
			m = in
		}
		a.heard <- m
		if m, ok := m.(protocol.GrantAdd); ok {
			a.takes(m)
		}
	}
}

// An attach is one terminal stream, as the sandbox sees it.
type attach struct {
	t      *testing.T
	params protocol.TerminalParams
	grant  string
	stream *tunnel.Stream
	heard  chan protocol.Message
	world  *world

	writing sync.Mutex // the pieces of a keyframe follow each other
}

// takes answers a grant.
func (a *attach) takes(m protocol.GrantAdd) {
	a.world.mu.Lock()
	takes := a.world.takes
	a.world.mu.Unlock()
	answer := &protocol.Granted{Handle: m.Handle}
	if takes != nil {
		answer = takes(m)
	}
	if answer != nil {
		a.writing.Lock()
		defer a.writing.Unlock()
		protocol.Write(a.stream, *answer) // which may be over
	}
}

// attached returns the next stream that a hub opens.
func (w *world) attached() *attach {
	w.t.Helper()
	select {
	case a := <-w.attaches:
		return a
	case <-time.After(patience):
		w.t.Fatal("no terminal stream")
		return nil
	}
}

func (a *attach) say(messages ...protocol.Message) {
	a.t.Helper()
	a.writing.Lock()
	defer a.writing.Unlock()
	for _, m := range messages {
		if err := protocol.Write(a.stream, m); err != nil {
			a.t.Fatalf("%s to the hub: %v", m.FrameType(), err)
		}
	}
}

// data sends output that starts at offset, and returns where it ends.
func (a *attach) data(offset uint64, bytes string) uint64 {
	a.t.Helper()
	a.say(protocol.Data{Offset: offset, Bytes: []byte(bytes)})
	return offset + uint64(len(bytes))
}

// hears returns the hub's next message of type M; others are passed over.
func hears[M protocol.Message](a *attach) M {
	a.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case m, ok := <-a.heard:
			if !ok {
				a.t.Fatalf("the stream ended before a %T came", *new(M))
			}
			if m, ok := m.(M); ok {
				return m
			}
		case <-deadline:
			a.t.Fatalf("no %T came", *new(M))
		}
	}
}

// A watcher is a viewer with a socket that records what it gets.
type watcher struct {
	t      *testing.T
	v      *Viewer
	handle *Handle
	sink   *sink
	grant  *jws.Grant
	token  string
	stop   context.CancelFunc
	served chan struct{}
	sized  bool
}

// alice may control, and is who holds a lease of held.
func alice(g *jws.Grant) { g.ID = "gr_alice" }

// bob may control as well.
func bob(g *jws.Grant) { g.Subject, g.Name, g.ID = "usr_bob", "Bob", "gr_bob" }

// carol may view.
func carol(g *jws.Grant) {
	g.Subject, g.Name, g.ID, g.Caps = "usr_carol", "Carol", "gr_carol", []protocol.Capability{protocol.CapView}
}

// join attaches a socket of a user.
func (w *world) join(who func(*jws.Grant), since *protocol.Position) *watcher {
	w.t.Helper()
	grant, token := w.authority.Grant(who)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	handle, err := w.set.Open(ctx, testKey, grant, token)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.sit(handle, grant, token, since)
}

// joinAs is join for a socket that asks for more.
func (w *world) joinAs(who func(*jws.Grant), g Guest) *watcher {
	w.t.Helper()
	grant, token := w.authority.Grant(who)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	handle, err := w.set.Open(ctx, testKey, grant, token)
	if err != nil {
		w.t.Fatal(err)
	}
	g.Grant, g.Token = grant, token
	return w.place(handle, g)
}

// sit joins through a handle.
func (w *world) sit(handle *Handle, grant *jws.Grant, token string, since *protocol.Position) *watcher {
	return w.place(handle, Guest{Grant: grant, Token: token, Since: since})
}

func (w *world) place(handle *Handle, g Guest) *watcher {
	s := &sink{changed: make(chan struct{}, 1), heard: time.Now()}
	g.Socket = s
	v := handle.Join(g)
	grant, token := g.Grant, g.Token
	ctx, stop := context.WithCancel(context.Background())
	x := &watcher{t: w.t, v: v, handle: handle, sink: s, grant: grant, token: token, stop: stop, served: make(chan struct{})}
	go func() { // leave waits for it
		defer close(x.served)
		defer handle.Release()
		v.Serve(ctx)
		v.Leave()
	}()
	w.t.Cleanup(x.leave)
	return x
}

// leave ends the socket as a client that goes away does.
func (x *watcher) leave() {
	x.sink.block(false)
	x.stop()
	<-x.served
}

// next returns what the socket gets next. Presence is passed over: it comes
// when it comes; and so is which socket gives the size, unless sized is set.
func (x *watcher) next() item {
	x.t.Helper()
	deadline := time.After(patience)
	for {
		if it, ok := x.sink.take(); ok {
			if it.kind == protocol.ServerPresence || it.kind == protocol.ServerSizeLed && !x.sized {
				continue
			}
			return it
		}
		select {
		case <-x.sink.changed:
		case <-deadline:
			x.t.Fatal("nothing came to the socket")
		}
	}
}

// gets checks the kinds of the next items, and returns the last.
func (x *watcher) gets(kinds ...string) item {
	x.t.Helper()
	var it item
	for i, want := range kinds {
		if it = x.next(); it.kind != want {
			x.t.Fatalf("item %d is %s, want %s", i, it, want)
		}
	}
	return it
}

// until passes over all but the kind.
func (x *watcher) until(kind string) item {
	x.t.Helper()
	for {
		if it := x.next(); it.kind == kind {
			return it
		} else if it.kind == closed {
			x.t.Fatalf("%s before %s", it, kind)
		}
	}
}

// reads checks the next bytes of output, in however many frames.
func (x *watcher) reads(want string) {
	x.t.Helper()
	var got string
	for len(got) < len(want) {
		got += string(x.gets(output).bytes)
	}
	if got != want {
		x.t.Fatalf("read %q, want %q", got, want)
	}
}

// types hands over input that has room.
func (x *watcher) types(input string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	if err := x.v.Type(ctx, []byte(input)); err != nil {
		x.t.Fatal(err)
	}
}

// greeted passes over the greeting and returns the attached message.
func (x *watcher) greeted() protocol.Attached {
	x.t.Helper()
	var m protocol.Attached
	x.gets(protocol.ServerControlState)
	x.gets(protocol.ServerAttached).decode(x.t, &m)
	return m
}
