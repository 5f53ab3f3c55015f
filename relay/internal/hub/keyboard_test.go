package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	theTypist = protocol.UserID("usr_typist")
	another   = protocol.UserID("usr_another")
)

// A keyboard is a client of terminal.v2, a still hub and an agent, with what is
// on the way between them. Nothing happens by itself: a test says what comes
// next.
type keyboard struct {
	t      *rapid.T
	client typingClient
	hub    *Hub
	now    time.Time // of the agent

	socket   *Viewer // nil: the client has none
	sockets  turn.SocketID
	toRelay  []any // protocol.BrowserInput, or the type of a message
	toClient []item

	link      *link // nil: there is no tunnel
	toAgent   []protocol.Message
	fromAgent []protocol.Message

	register *lease.Register
	window   *lease.Window
	running  bool     // a coding agent has the terminal
	full     bool     // the agent has no room
	taken    int64    // of the relay's room
	written  []uint64 // sequences, as the program read them
	story    []string // what came
}

// A typingClient is how a client goes about its input.
type typingClient interface {
	types(term uint64) uint64                       // its sequence
	control(controller protocol.UserID, t uint64)   // control_state came
	waits()                                         // waiting came
	acked(seq uint64)                               // input_ack came
	refused(seq uint64, why protocol.RefusalReason) // input_refused came
	attached()
	lost()                          // its socket
	tick()                          // a while later
	sends() []protocol.BrowserInput // what it sends now
	may() (term uint64, ok bool)    // it has control
	open() []uint64                 // neither written nor refused for good
	dropped() []uint64              // refused for good
}

func newKeyboard(t *rapid.T, client typingClient) *keyboard {
	k := &keyboard{
		t: t, client: client, now: time.Unix(1_800_000_000, 0),
		register: lease.New(), window: lease.NewWindow(16),
		hub: newHub(testKey, typistGrant(), "typist", alone{}, nil, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry())),
	}
	k.propose(theTypist)
	k.linkUp()
	k.connect()
	return k
}

func typistGrant() *jws.Grant {
	return &jws.Grant{
		ID: "gr_typist", Subject: theTypist, PTYs: []string{jws.AllPTYs}, ExpiresAt: time.Now().Add(time.Hour).Unix(),
		Caps: []protocol.Capability{protocol.CapView, protocol.CapControl},
	}
}

// alone is a hub without others.
type alone struct{}

func (alone) watch(*tunnel.Session, int) {}
func (alone) window() int                { return protocol.RingBytes }
func (alone) keyframes() *feed.Memory    { return nil }
func (alone) sender() *batchsend.Sender  { return batchsend.New(batchsend.Options{Direct: true}) }

// settle has the hub take what was posted.
func (k *keyboard) settle() {
	for {
		select {
		case e := <-k.hub.events:
			e.act(k.hub)
		case <-k.hub.typing.Asks():
			k.hub.heed()
		default:
			return
		}
	}
}

func (k *keyboard) linkUp() {
	if k.link != nil {
		return
	}
	life := agentstream.NewLife(context.Background())
	k.t.Cleanup(life.End)
	k.link = &link{bearer: k.hub.dial.bearer.Load(), life: life}
	k.link.Init(nil, life) // nothing is written by itself
	k.link.opened = protocol.TerminalOpened{
		Epoch: testEpoch, Cols: 80, Rows: 24, Claimed: true, Lease: k.register.Lease(k.now), Agent: k.report(),
	}
	linkUp{k.link, make(chan struct{})}.act(k.hub)
	k.settle()
}

func (k *keyboard) linkDown() {
	if k.link == nil {
		return
	}
	k.link, k.toAgent, k.fromAgent = nil, nil, nil
	linkDown{io.EOF}.act(k.hub)
	k.settle()
	k.change(func() { k.register.Sockets(k.register.Lease(k.now).Holder, 0, k.now) })
}

// connect gives the client a socket; an old one leaves only now.
func (k *keyboard) connect() {
	old := k.socket
	k.sockets++
	v := newViewer(k.hub, k.sockets, Guest{Grant: typistGrant(), Token: "typist", Counts: true, Client: "page"})
	k.socket, k.toRelay, k.toClient = v, nil, nil
	k.client.lost()
	joined{v}.act(k.hub)
	k.settle()
	if old != nil {
		left{old}.act(k.hub)
		k.settle()
	}
	k.flush()
}

func (k *keyboard) disconnect() {
	if k.socket == nil {
		return
	}
	left{k.socket}.act(k.hub)
	k.settle()
	k.socket, k.toRelay, k.toClient = nil, nil, nil
	k.client.lost()
}

// flush puts on the way what client and hub have to say.
func (k *keyboard) flush() {
	if k.socket != nil {
		for _, in := range k.client.sends() {
			k.toRelay = append(k.toRelay, in)
		}
		batch, _, _ := k.socket.socket.collect(false)
		for all := bytes.Join(batch, nil); len(all) > 0; {
			payload, rest, err := relaytest.Frame(all)
			if err != nil {
				k.t.Fatal(err)
			}
			var head struct{ Type string }
			if err := json.Unmarshal(payload, &head); err != nil {
				k.t.Fatal(err)
			}
			k.toClient = append(k.toClient, item{kind: head.Type, bytes: bytes.Clone(payload)})
			all = rest
		}
		k.socket.socket.recycle(batch)
	}
	if k.link != nil {
		frames := protocol.NewFrameReader(bytes.NewReader(k.link.Take()))
		for {
			frame, err := frames.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				k.t.Fatal(err)
			}
			m, err := protocol.Decode(frame)
			if err != nil {
				k.t.Fatal(err)
			}
			k.toAgent = append(k.toAgent, m)
		}
	}
}

// relayTakes has the relay take what the client said first.
func (k *keyboard) relayTakes() bool {
	if len(k.toRelay) == 0 {
		return false
	}
	m := k.toRelay[0]
	k.toRelay = k.toRelay[1:]
	switch m := m.(type) {
	case protocol.BrowserInput:
		k.socket.TypeNumbered(m)
	case string:
		k.socket.Say(protocol.ClientMessage{Type: m})
	}
	k.settle()
	return true
}

// clientTakes has the client take what the relay said first.
func (k *keyboard) clientTakes() bool {
	if len(k.toClient) == 0 {
		return false
	}
	it := k.toClient[0]
	k.toClient = k.toClient[1:]
	decode := func(v any) {
		if err := json.Unmarshal(it.bytes, v); err != nil {
			k.t.Fatal(err)
		}
	}
	switch it.kind {
	case protocol.ServerControlState:
		var m protocol.ControlState
		decode(&m)
		holder := m.Controller
		if m.AgentState == string(protocol.AgentRunning) {
			holder = protocol.AgentHolder
		}
		k.client.control(holder, m.Term)
	case protocol.ServerAttached:
		k.client.attached()
	case protocol.ServerWaiting:
		k.client.waits()
	case protocol.ServerInputAck:
		var m protocol.InputWritten
		decode(&m)
		k.client.acked(m.Seq)
	case protocol.ServerInputRefused:
		var m protocol.InputDropped
		decode(&m)
		k.client.refused(m.Seq, m.Reason)
	}
	return true
}

// agentTakes has the agent take what the relay said first.
func (k *keyboard) agentTakes() bool {
	if len(k.toAgent) == 0 {
		return false
	}
	m := k.toAgent[0]
	k.toAgent = k.toAgent[1:]
	switch m := m.(type) {
	case protocol.GrantAdd:
		k.fromAgent = append(k.fromAgent, protocol.Granted{Handle: m.Handle, GrantID: "gr_typist"})
	case protocol.Input:
		k.input(m)
	case protocol.Holder:
		k.change(func() { k.register.Sockets(m.User, m.Sockets, k.now) })
	case protocol.LeaseProposal:
		reply := protocol.Leased{ID: m.ID}
		if k.running {
			reply.Refused = string(protocol.RefusedAgentRunning)
		} else if _, err := k.register.Propose(m, 1, k.now); err != nil {
			reply.Refused = err.Error()
		}
		reply.Lease = k.register.Lease(k.now)
		k.fromAgent = append(k.fromAgent, reply)
	}
	return true
}

func (k *keyboard) input(in protocol.Input) {
	reason, ok := k.register.Check(in.Term)
	last, known := k.window.Last(in.Client)
	switch {
	case known && in.Seq <= last:
		k.fromAgent = append(k.fromAgent, protocol.InputAck{Client: in.Client, Seq: last})
		return
	case k.running:
		reason = protocol.RefusedAgentRunning
	case ok && k.full:
		reason = protocol.RefusedBusy
	case ok:
		k.window.Accept(in.Client, in.Seq)
		k.written = append(k.written, in.Seq)
		k.fromAgent = append(k.fromAgent, protocol.InputAck{Client: in.Client, Seq: in.Seq})
		return
	}
	k.fromAgent = append(k.fromAgent, protocol.InputRefused{Client: in.Client, Seq: in.Seq, Reason: reason})
}

// relayHears has the relay take what the agent said first.
func (k *keyboard) relayHears() bool {
	if len(k.fromAgent) == 0 {
		return false
	}
	m := k.fromAgent[0]
	k.fromAgent = k.fromAgent[1:]
	switch m := m.(type) {
	case protocol.InputAck:
		k.hub.typing.Acked(m)
	case protocol.InputRefused:
		k.hub.typing.Refused(m)
	default:
		answered{k.link, m}.act(k.hub)
	}
	k.settle()
	return true
}

// change changes the lease and tells of it, if that was a change.
func (k *keyboard) change(do func()) {
	before := k.register.Lease(k.now).Revision
	do()
	if l := k.register.Lease(k.now); k.link != nil && l.Revision != before {
		k.fromAgent = append(k.fromAgent, protocol.Leased{Lease: l})
	}
}

// propose makes user the holder, as another relay might.
func (k *keyboard) propose(user protocol.UserID) {
	k.change(func() {
		next := protocol.LeaseNext{Holder: user}
		if user == theTypist {
			next.GrantID = "gr_typist"
		}
		p := protocol.LeaseProposal{ExpectRevision: k.register.Lease(k.now).Revision, Next: next}
		_, _ = k.register.Propose(p, 1, k.now) // it may be in its grace
	})
}

func (k *keyboard) report() *protocol.AgentReport {
	if !k.running {
		return nil
	}
	return &protocol.AgentReport{State: protocol.AgentRunning, Name: "claude"}
}

// runs begins or ends the turn of a coding agent.
func (k *keyboard) runs(on bool) {
	if on == k.running {
		return
	}
	k.running = on
	state := protocol.AgentStopped
	next := protocol.UserID("")
	if on {
		state, next = protocol.AgentRunning, protocol.AgentHolder
	}
	k.propose(next)
	if k.link != nil {
		k.fromAgent = append(k.fromAgent, protocol.AgentReport{State: state, Name: "claude"})
	}
}

func (k *keyboard) wait(d time.Duration) {
	k.now = k.now.Add(d)
	k.change(func() { k.register.Expire(k.now) })
}

// drains gives the agent room again, once the relay has heard of what was
// refused: an agent that had room sooner might take what is behind that. A relay
// passes on no more than an agent's queue takes, so none does.
func (k *keyboard) drains() {
	if len(k.toAgent)+len(k.fromAgent) == 0 {
		k.full = false
	}
}

// fills takes all the room that the relay has for input; empties gives it back.
func (k *keyboard) fills() {
	for k.hub.typing.Room().TryAcquire(input.Overhead) {
		k.taken += input.Overhead
	}
}

func (k *keyboard) empties() {
	k.hub.typing.Room().Release(k.taken)
	k.taken = 0
}

// pump lets everything arrive.
func (k *keyboard) pump() {
	for range 40 {
		k.client.tick()
		for k.flush(); k.clientTakes() || k.relayTakes() || k.agentTakes() || k.relayHears(); k.flush() {
		}
	}
}

// check says what must hold however things went.
func (k *keyboard) check() {
	for i := 1; i < len(k.written); i++ {
		if k.written[i] <= k.written[i-1] {
			k.t.Fatalf("written in this order: %v", k.written)
		}
	}
}

// end brings everything back, has the client take control, and checks that
// what it types then arrives, and that of each key something is known.
func (k *keyboard) end(keys uint64) {
	k.linkUp()
	if k.socket == nil {
		k.connect()
	}
	k.pump()
	k.runs(false)
	k.full = false
	k.empties()
	if holder := k.register.Lease(k.now).Holder; holder != theTypist {
		k.propose("")
	}
	k.pump()
	term, ok := k.client.may()
	if !ok {
		k.toRelay = append(k.toRelay, protocol.ClientTakeControl)
		k.pump()
		if term, ok = k.client.may(); !ok {
			k.t.Fatal("no control")
		}
	}
	last := k.client.types(term)
	k.pump()
	if !slices.Contains(k.written, last) {
		k.t.Fatalf("dead keyboard: %d was not written, %v were; %+v, the client keeps %v; %q", last, k.written, &k.socket.keys, k.client.open(), k.story)
	}
	if open := k.client.open(); len(open) > 0 {
		k.t.Fatalf("of %v nothing is known", open)
	}
	for seq := uint64(1); seq <= keys; seq++ {
		if !slices.Contains(k.written, seq) && !slices.Contains(k.client.dropped(), seq) {
			k.t.Fatalf("key %d was lost without a word: written %v, refused %v; %q", seq, k.written, k.client.dropped(), k.story)
		}
	}
	k.check()
}

// TestFound22ClientAndGate lets verdicts and outages of all sorts come in every
// order upon clients that go about their input as the console does, and as the
// Go clients do. Nothing is written twice or out of order, each key is written
// or refused (of what was written right before a tunnel and control were lost,
// nobody knows, and it is refused as well), and in the end whoever has control
// types.
func TestFound22ClientAndGate(t *testing.T) {
	for name, client := range map[string]func() typingClient{
		"console": func() typingClient { return &consoleTyping{} },
		"go":      func() typingClient { return &goTyping{} },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { typeOn(t, client()) })
		})
	}
}

// An act is one thing that may come next, and how often it does.
type act struct {
	name  string
	often int
	do    func()
}

func (k *keyboard) acts(types func()) (all []act) {
	once := func(do func() bool) func() { return func() { do() } }
	for _, a := range []act{
		{"types", 4, types},
		{"relay takes", 5, once(k.relayTakes)},
		{"client takes", 5, once(k.clientTakes)},
		{"agent takes", 3, once(k.agentTakes)},
		{"relay hears", 3, once(k.relayHears)},
		{"tick", 2, k.client.tick},
		{"pump", 1, k.pump},
		{"tunnel lost", 1, k.linkDown},
		{"tunnel back", 2, k.linkUp},
		{"socket lost", 1, k.disconnect},
		{"socket back", 1, k.connect},
		{"time", 1, func() { k.wait(6 * time.Second) }},
		{"takes", 2, func() { k.says(protocol.ClientTakeControl) }},
		{"gives back", 1, func() { k.says(protocol.ClientRevokeControl) }},
		{"another", 1, func() { k.proposeUnlessRunning(another) }},
		{"nobody", 1, func() { k.proposeUnlessRunning("") }},
		{"agent begins", 1, func() { k.runs(true) }},
		{"agent ends", 2, func() { k.runs(false) }},
		{"no room", 1, func() { k.full = true }},
		{"room", 2, k.drains},
		{"relay full", 1, k.fills},
		{"relay has room", 2, k.empties},
	} {
		for range a.often {
			all = append(all, a)
		}
	}
	return all
}

func typeOn(t *rapid.T, client typingClient) {
	k := newKeyboard(t, client)
	var keys uint64
	acts := k.acts(func() {
		if term, ok := client.may(); ok {
			keys = client.types(term)
		}
	})
	which := rapid.IntRange(0, len(acts)-1)
	for range rapid.IntRange(0, 60).Draw(t, "long") * 4 {
		a := acts[which.Draw(t, "act")]
		if k.socket == nil && k.link == nil { // as good as nothing happens
			k.connect()
		}
		k.story = append(k.story, a.name)
		a.do()
		k.flush()
		k.check()
	}
	k.end(keys)
}

func (k *keyboard) says(message string) {
	if k.socket != nil {
		k.toRelay = append(k.toRelay, message)
	}
}

func (k *keyboard) proposeUnlessRunning(user protocol.UserID) {
	if !k.running {
		k.propose(user)
	}
}

// A mind is what all clients remember of their input.
type mind struct {
	term   uint64
	holder protocol.UserID
	live   bool // attached, and the sandbox is there
	seq    uint64
	queue  []protocol.BrowserInput // not acknowledged
	sent   int                     // how many of them the present socket was given
	gone   []uint64
}

func (m *mind) types(term uint64) uint64 {
	m.seq++
	m.queue = append(m.queue, protocol.BrowserInput{Seq: m.seq, Term: term, Bytes: fmt.Appendf(nil, "%d;", m.seq)})
	return m.seq
}

func (m *mind) may() (uint64, bool) { return m.term, m.holder == theTypist }

// may lets the console's user type at a free terminal, too.
func (c *consoleTyping) may() (uint64, bool) {
	if c.holder == "" && c.known {
		return protocol.FreeTerm(c.term), true
	}
	return c.mind.may()
}

func (m *mind) acked(seq uint64) {
	n := 0
	for n < len(m.queue) && m.queue[n].Seq <= seq {
		n++
	}
	m.queue, m.sent = m.queue[n:], max(0, m.sent-n)
}

// forget drops seq from the queue, and reports where it was.
func (m *mind) forget(seq uint64) {
	i := slices.IndexFunc(m.queue, func(in protocol.BrowserInput) bool { return in.Seq == seq })
	if i < 0 {
		return
	}
	m.gone = append(m.gone, seq)
	m.queue = slices.Delete(slices.Clone(m.queue), i, i+1)
	if i < m.sent {
		m.sent--
	}
}

func (m *mind) unsent() []protocol.BrowserInput {
	out := slices.Clone(m.queue[m.sent:])
	m.sent = len(m.queue)
	return out
}

func (m *mind) open() (seqs []uint64) {
	for _, in := range m.queue {
		seqs = append(seqs, in.Seq)
	}
	return seqs
}

func (m *mind) dropped() []uint64 { return m.gone }

// goTyping is how the clients of deploy/e2e and loadtest type.
type goTyping struct {
	mind
	held bool
}

func (c *goTyping) control(holder protocol.UserID, term uint64) { c.holder, c.term = holder, term }
func (c *goTyping) waits()                                      {}
func (c *goTyping) attached()                                   { c.live = true }
func (c *goTyping) lost()                                       { c.live, c.sent = false, 0 }
func (c *goTyping) tick()                                       { c.held = false }

func (c *goTyping) refused(seq uint64, why protocol.RefusalReason) {
	if !input.Momentary(why) {
		c.forget(seq)
		return
	}
	if i := slices.IndexFunc(c.queue, func(in protocol.BrowserInput) bool { return in.Seq == seq }); i >= 0 {
		c.sent, c.held = min(c.sent, i), true
	}
}

func (c *goTyping) sends() []protocol.BrowserInput {
	if !c.live || c.term == 0 || c.held {
		return nil
	}
	return c.unsent()
}

// consoleTyping is how the console types: outbox.ts and socket.ts.
type consoleTyping struct {
	mind
	there   bool // attached
	waiting bool
	known   bool // who has control
	again   bool // a timer runs, after which all is sent again
}

// changed sends everything again when the sandbox is there anew.
func (c *consoleTyping) changed() {
	if live := c.there && !c.waiting; live != c.live {
		c.live = live
		if live {
			c.sent = 0
		}
	}
}

func (c *consoleTyping) control(holder protocol.UserID, term uint64) {
	c.holder, c.term, c.waiting, c.known = holder, term, false, true
	c.changed()
}

func (c *consoleTyping) waits()    { c.waiting = true; c.changed() }
func (c *consoleTyping) attached() { c.there, c.waiting = true, false; c.changed() }
func (c *consoleTyping) lost()     { c.there, c.waiting = false, false; c.changed() }

func (c *consoleTyping) tick() {
	if c.again && c.live {
		c.sent = 0
	}
	c.again = false
}

func (c *consoleTyping) refused(seq uint64, why protocol.RefusalReason) {
	if input.Momentary(why) {
		c.again = true
		return
	}
	c.forget(seq)
}

func (c *consoleTyping) sends() []protocol.BrowserInput {
	if !c.live {
		return nil
	}
	return c.unsent()
}

// TestFound22WhatIsBehindARefusedKeyWaits: the agent refuses a key for the moment,
// and the stream is lost before it has said anything of the next one. On the next
// stream that must not go before the refused one, which would be taken for a
// repetition then.
func TestFound22WhatIsBehindARefusedKeyWaits(t *testing.T) {
	for name, lost := range map[string]func(k *keyboard){
		"the stream is lost": func(*keyboard) {},
		"and the socket":     (*keyboard).disconnect,
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				client := &consoleTyping{}
				k := newKeyboard(t, client)
				k.pump()
				term, ok := client.may()
				if !ok {
					t.Fatal("no control")
				}
				client.types(term)
				keys := client.types(term)
				for k.flush(); k.relayTakes(); k.flush() {
				}
				k.full = true
				for len(k.fromAgent) == 0 {
					k.agentTakes()
				}
				k.relayHears()
				k.linkDown()
				lost(k)
				k.flush()
				k.full = false
				k.end(keys)
			})
		})
	}
}
