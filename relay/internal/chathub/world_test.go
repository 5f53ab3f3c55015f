package chathub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) {
	openTimeout, grantWait, ackPatience = patience, patience, patience
	goleak.VerifyTestMain(relaytest.Patient(m))
}

// patience bounds what would hang if it failed.
const patience = time.Minute

var rounds = flag.Int("rounds", 300, "rounds of TestRace")

const (
	testSession = relaytest.Session
	convA       = protocol.ConversationID("aaaaaaaa-0000-4000-8000-000000000001")
	convB       = protocol.ConversationID("bbbbbbbb-0000-4000-8000-000000000002")
)

// A world is a set of hubs and one sandbox.
type world struct {
	t         testing.TB
	authority *relaytest.Authority
	tunnels   *relaytest.Tunnels
	set       *Set
	agent     *sandbox
	session   *tunnel.Session // the sandbox's end of its last tunnel
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := newWorldWithout(t)
	w.connect()
	return w
}

// newWorldWithout returns a world whose sandbox has no tunnel.
func newWorldWithout(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}, agent: newSandbox(t)}
	w.set = NewSet(Options{
		Tunnels: w.tunnels, Grants: w.authority.Grants, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if w.set.Close(ctx); ctx.Err() != nil {
			t.Error("the set didn't close")
		}
	})
	return w
}

// becomesTrue waits for what nobody tells of.
func (w *world) becomesTrue(is func() bool) {
	w.t.Helper()
	again, deadline := time.NewTicker(time.Millisecond), time.After(patience)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-deadline:
			w.t.Fatal("it doesn't become true")
		}
	}
}

// connect gives the sandbox a new tunnel.
func (w *world) connect() {
	agent, relay := tunneltest.Pair(w.t)
	w.session = agent
	w.tunnels.Connect(relay)
	relaytest.Answer(w.t, agent, w.agent.answer)
}

// Those who join: alice owns the session and chats, bob chats, carol may look.
func alice(g *jws.Grant) { caps(g, "alice", protocol.CapView, protocol.CapChat, protocol.CapAdmin) }
func bob(g *jws.Grant)   { caps(g, "bob", protocol.CapView, protocol.CapChat) }
func carol(g *jws.Grant) { caps(g, "carol", protocol.CapView) }

func caps(g *jws.Grant, who string, caps ...protocol.Capability) {
	g.Subject, g.Name, g.ID, g.Caps = protocol.UserID("usr_"+who), who, protocol.GrantID("gr_"+who), caps
}

// A client is a socket that records what it gets.
type client struct {
	t      testing.TB
	s      *Socket
	conn   *conn
	grant  *jws.Grant
	token  string
	stop   context.CancelFunc
	served chan struct{}
}

func (w *world) join(who func(*jws.Grant)) *client {
	w.t.Helper()
	grant, token := w.authority.Grant(who)
	return w.joinWith(grant, token)
}

func (w *world) joinWith(grant *jws.Grant, token string) *client {
	w.t.Helper()
	x := &client{t: w.t, conn: &conn{changed: make(chan struct{}, 1), heard: time.Now()}, grant: grant, token: token, served: make(chan struct{})}
	s, err := w.set.Socket(x.conn, Guest{Grant: grant, Token: token, Session: testSession})
	if err != nil {
		w.t.Fatal(err)
	}
	x.s = s
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	go func() { // leave waits for it
		defer close(x.served)
		s.Serve(ctx)
	}()
	w.t.Cleanup(x.leave)
	return x
}

// leave ends the socket as a client that goes away does.
func (x *client) leave() {
	x.conn.block(false)
	x.stop()
	<-x.served
}

func (x *client) follow(marks ...any) {
	var all []chatsocket.Mark
	for i := 0; i < len(marks); i += 2 {
		all = append(all, chatsocket.Mark{SessionID: marks[i].(protocol.ConversationID), LastSeq: uint64(marks[i+1].(int))})
	}
	x.s.Follow(x.t.Context(), all...)
}

// A message is one frame that a socket got.
type message struct {
	Kind       string
	SessionID  protocol.ConversationID `json:"sessionId"`
	Seq        uint64
	LastSeq    uint64
	FirstSeq   uint64
	Epoch      string
	Gap        bool
	Processing bool               `json:"isProcessing"`
	Pending    []protocol.Pending `json:"pendingPermissions"`
	Code       string
	Text       string `json:"error"`
	State      string
	Controller string
	Requests   []string
	MSLeft     int64  `json:"ms_left"`
	CommandID  string `json:"commandId"`
	Terminal   string `json:"terminal"`
	Count      int
	Viewers    []protocol.PresentViewer
	Origin     string
	Close      int `json:"-"`
	raw        string
}

func (m message) String() string { return fmt.Sprintf("%s %d %.200s", m.Kind, m.Close, m.raw) }

const closed = "closed"

// next returns what the socket gets next. Presence is passed over unless wanted.
func (x *client) next(kinds ...string) message {
	x.t.Helper()
	deadline := time.After(patience)
	for {
		if m, ok := x.conn.take(); ok {
			if m.Kind == "presence" && (len(kinds) == 0 || kinds[0] != "presence") {
				continue
			}
			return m
		}
		select {
		case <-x.conn.changed:
		case <-deadline:
			x.t.Fatal("nothing came to the socket")
		}
	}
}

// gets checks the kinds of the next messages, and returns the last.
func (x *client) gets(kinds ...string) (m message) {
	x.t.Helper()
	for i, want := range kinds {
		if m = x.next(want); m.Kind != want {
			x.t.Fatalf("message %d is %s, want %s", i, m, want)
		}
	}
	return m
}

// until passes over all but the kind.
func (x *client) until(kind string) message {
	x.t.Helper()
	for {
		if m := x.next(kind); m.Kind == kind {
			return m
		} else if m.Kind == closed {
			x.t.Fatalf("%s before %s", m, kind)
		}
	}
}

// reads checks that the next messages are these events of a conversation.
func (x *client) reads(c protocol.ConversationID, from, to uint64) {
	x.t.Helper()
	for seq := from; seq <= to; seq++ {
		if m := x.next(); m.Seq != seq || m.SessionID != c {
			x.t.Fatalf("%s, want event %d of %.8s", m, seq, c)
		}
	}
}

// acked checks a chat_subscribed.
func (x *client) acked(c protocol.ConversationID, last uint64, gap bool) message {
	x.t.Helper()
	m := x.gets("chat_subscribed")
	if m.SessionID != c || m.LastSeq != last || m.Gap != gap {
		x.t.Fatalf("%s, want %.8s up to %d, gap %v", m, c, last, gap)
	}
	return m
}

// A conn records, and can stop taking anything.
type conn struct {
	changed chan struct{}

	mu     sync.Mutex
	items  []message
	writes int
	gate   chan struct{} // while not nil, writes wait for it to close
	stuck  chan struct{} // closed when one does
	heard  time.Time
	pings  int
	asked  uint64 // number of the last ping that has one
	silent bool   // it doesn't answer those
}

// answers has the client answer pings, or not.
func (c *conn) answers(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = !on
}

func (c *conn) Answered() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return 0
	}
	return c.asked
}

func (c *conn) block(on bool) (stuck chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate != nil {
		close(c.gate)
		c.gate = nil
	}
	if on {
		c.gate, c.stuck = make(chan struct{}), make(chan struct{})
	}
	return c.stuck
}

func (c *conn) take() (message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.items) == 0 {
		return message{}, false
	}
	m := c.items[0]
	c.items = c.items[1:]
	return m, true
}

func (c *conn) add(m message) {
	c.items = append(c.items, m)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *conn) WriteFrames(frames net.Buffers) error {
	c.mu.Lock()
	gate, stuck := c.gate, c.stuck
	c.writes++
	c.mu.Unlock()
	var all []byte
	for _, b := range frames {
		all = append(all, b...)
	}
	if gate != nil {
		select {
		case <-stuck:
		default:
			close(stuck)
		}
		<-gate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(all) > 0 {
		if ping := replay.PingFrame(c.asked + 1); bytes.HasPrefix(all, ping) {
			c.asked++
			all = all[len(ping):]
			continue
		}
		payload, rest, err := parse(all)
		if err != nil {
			return err
		}
		m := message{raw: string(payload)}
		if err := json.Unmarshal(payload, &m); err != nil {
			return err
		}
		c.add(m)
		all = rest
	}
	return nil
}

// parse splits one frame of text off b.
func parse(b []byte) (payload, rest []byte, err error) {
	if len(b) > 0 && b[0] != 0x81 {
		return nil, nil, errors.New("a frame of something else")
	}
	return relaytest.Frame(b)
}

func (c *conn) Ping() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pings++
	return nil
}

func (c *conn) LastHeard() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

func (c *conn) Close(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(message{Kind: closed, Close: code, raw: reason})
}
