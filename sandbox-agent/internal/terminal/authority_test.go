package terminal

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

var (
	authorityOps  = flag.Int("terminal.ops", 6_000, "what TestAuthorityIsLinearizable's clients do, all together")
	authoritySeed = flag.Uint64("terminal.seed", 0, "seed of what races here, 0 for a random one")
)

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := cmp.Or(*authoritySeed, rand.Uint64())
	t.Logf("seed %d", seed)
	return seed
}

const (
	terminals    = 3
	opsPerRound  = 8   // of each client
	unit         = 8   // bytes of each input and each output
	patience     = 100 // hours that grants are good for
	modelKeeper  = protocol.UserID("usr_keeper")
	firstOfRound = protocol.GrantID("gr_keeper")
)

func modelUser(n int) protocol.UserID {
	if n == modelAgent {
		return protocol.AgentHolder
	}
	return []protocol.UserID{"", alice, bob, "usr_carol"}[n]
}

func modelGrant(terminal, user, round int) protocol.GrantID {
	return protocol.GrantID(fmt.Sprintf("gr_%d_%d_%d", terminal, user, round))
}

// A race is one terminal that clients race for.
type race struct {
	n       int
	term    *Terminal
	host    *fakeHost
	cli     *fakeDevice // a coding agent's, which is in front all the time
	clients []*racer
	clock   *atomic.Int64 // porcupine's: it orders calls and returns
	start   time.Time
	round   int // changed between rounds only

	mu      sync.Mutex
	written map[string]int // guarded by mu: where each input went

	history []porcupine.Operation // of main
}

// A racer is one client.
type racer struct {
	*race
	*viewer
	id      int
	random  *rand.Rand
	seq     uint64
	seen    protocol.Lease // the newest it knows of
	history []porcupine.Operation
}

func (h *fakeHost) newRace(t *testing.T, n int, clock *atomic.Int64, seed uint64) *race {
	t.Helper()
	id := protocol.PTYID(fmt.Sprintf("pty_%d", n))
	h.create(t, id)
	term, err := h.Get(session, id)
	if err != nil {
		t.Fatal(err)
	}
	r := &race{n: n, term: term, host: h, clock: clock, start: time.Now(), written: map[string]int{}}
	if _, err := h.StartAgent(t.Context(), session, id, op.AgentStart{Name: robot, Command: "exec robot"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.PauseAgent(session, id); err != nil {
		t.Fatal(err)
	}
	r.cli = h.launched[len(h.launched)-1].dev
	r.cli.setRoom(1 << 40)
	r.cli.offered = func(p []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.written[string(p)] = len(r.written)
	}
	for i := range modelClients {
		c := &racer{race: r, viewer: attach(t, term, nil), id: i, random: rand.New(rand.NewPCG(seed, uint64(n*modelClients+i)))}
		if err := c.AddGrant(grantOf(modelKeeper, firstOfRound, patience*time.Hour), 0); err != nil {
			t.Fatal(err)
		}
		c.seen = c.opened.Lease
		r.clients = append(r.clients, c)
	}
	return r
}

// do records a call.
func (c *racer) do(o authorityOp, call func() authorityResult) {
	o.terminal, o.client, o.now = c.n, c.id, time.Since(c.start)
	from := c.clock.Add(1)
	result := call()
	c.history = append(c.history, porcupine.Operation{
		ClientId: c.n*modelClients + c.id, Input: o, Output: result, Call: from, Return: c.clock.Add(1),
	})
}

// calls are those that a client makes, the usual ones more often.
var calls = []authorityOpKind{
	opPropose, opPropose, opPropose, opPropose, opSockets, opSockets, opSockets, opRevoke, opType, opType, opType, opType, opType,
	opPause, opPause, opResume, opTurn, opTurn, opStart, opLook, opPrint,
}

// run makes the calls of one round.
func (c *racer) run() {
	if c.round%2 == 0 { // a relay that loses everybody
		for user := range modelUsers {
			o := authorityOp{kind: opSockets, user: user + 1}
			c.do(o, func() authorityResult { return c.change(o) })
		}
	}
	for range opsPerRound {
		o := authorityOp{kind: calls[c.random.IntN(len(calls))], user: 1 + c.id%modelUsers, sockets: c.random.IntN(2)}
		if c.random.IntN(5) == 0 { // not the user of this relay
			o.user = 1 + c.random.IntN(modelUsers)
		}
		if o.kind == opPropose && c.random.IntN(5) == 0 {
			o.user = 0
		}
		if o.kind == opPropose || o.kind == opType {
			c.catchUp()
			o.expect, o.term = c.seen.Revision, c.seen.Term // may be old by the time of the call
		}
		if c.random.IntN(4) == 0 {
			o.term -= min(o.term, 1)
		}
		runtime.Gosched()
		switch o.kind {
		case opPropose:
			c.do(o, func() authorityResult { return c.proposal(o) })
		case opType:
			c.do(o, func() authorityResult { return c.input(o.term) })
		case opLook:
			c.do(o, c.look)
		case opPrint:
			c.do(o, c.print)
		default:
			c.do(o, func() authorityResult { return c.change(o) })
		}
	}
}

// change makes a call that returns nothing.
func (c *racer) change(o authorityOp) authorityResult {
	var err error
	switch o.kind {
	case opSockets:
		c.Holder(protocol.Holder{User: modelUser(o.user), Sockets: o.sockets})
	case opRevoke:
		c.host.RevokeGrants(modelGrant(c.n, o.user, c.round))
	case opPause:
		_, err = c.host.PauseAgent(session, c.term.id)
	case opResume:
		_, err = c.host.ResumeAgent(session, c.term.id)
	case opTurn:
		err = c.host.AgentTurn(session, c.term.id, protocol.AgentTurn{Agent: robot})
	case opStart:
		err = c.host.AgentStarted(session, c.term.id, robot)
	}
	if err != nil {
		c.t.Error(err)
	}
	return authorityResult{}
}

// catchUp reads what waits.
func (c *racer) catchUp() {
	for {
		m, err := c.Poll()
		if l, ok := m.(protocol.Leased); ok {
			c.seen = l.Lease
		} else if m == nil || err != nil {
			return
		}
	}
}

// await reads until want returns true.
func (c *racer) await(want func(protocol.Message) bool) {
	for {
		m, err := c.Next(c.t.Context())
		if err != nil {
			c.t.Error(err)
			return
		}
		if l, ok := m.(protocol.Leased); ok {
			c.seen = l.Lease
		}
		if want(m) {
			return
		}
	}
}

func (c *racer) proposal(o authorityOp) (r authorityResult) {
	c.seq++
	id := c.seq
	p := protocol.LeaseProposal{ID: id, ExpectRevision: o.expect}
	if o.user != 0 {
		p.Next = protocol.LeaseNext{Holder: modelUser(o.user), GrantID: modelGrant(c.n, o.user, c.round)}
	}
	c.Propose(p)
	c.await(func(m protocol.Message) bool {
		l, ok := m.(protocol.Leased)
		if !ok || l.ID != id {
			return false
		}
		r.lease = c.viewOf(l.Lease)
		switch l.Refused {
		case "":
		case string(protocol.RefusedAgentRunning):
			r.refused = protocol.RefusedAgentRunning
		default:
			r.refused = refusedConflict
		}
		return true
	})
	return r
}

// viewOf returns l as the model says it.
func (c *racer) viewOf(l protocol.Lease) leaseView {
	v := leaseView{revision: l.Revision, term: l.Term, state: l.State, left: time.Duration(l.MSLeft) * time.Millisecond}
	for v.user = range modelAgent + 1 {
		if modelUser(v.user) == l.Holder {
			break
		}
	}
	if l.GrantID != "" {
		if _, err := fmt.Sscanf(string(l.GrantID), fmt.Sprintf("gr_%d_%d_%%d", c.n, v.user), &v.round); err != nil {
			c.t.Errorf("grant %s: %v", l.GrantID, err)
		}
	}
	return v
}

// mark returns what no other client types or prints.
func (c *racer) mark(kind byte) []byte {
	c.seq++
	return fmt.Appendf(nil, "%c%d%06d", kind, c.id, c.seq)
}

func (c *racer) input(term uint64) (r authorityResult) {
	mark := c.mark('i')
	seq := c.seq
	c.Input(protocol.Input{Term: term, Seq: seq, Client: fmt.Sprint(c.id), Bytes: mark})
	c.await(func(m protocol.Message) bool {
		switch m := m.(type) {
		case protocol.InputAck:
			return m.Seq == seq
		case protocol.InputRefused:
			r.refused = m.Reason
			return m.Seq == seq
		}
		return false
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	at, written := c.written[string(mark)]
	if r.at = at; written != (r.refused == "") {
		c.t.Errorf("input was written: %v, and refused: %q", written, r.refused)
	}
	return r
}

func (c *racer) look() authorityResult {
	a, opened, err := c.term.Attach(protocol.TerminalParams{})
	if err != nil {
		c.t.Error(err)
		return authorityResult{}
	}
	a.Close()
	return authorityResult{lease: c.viewOf(opened.Lease), at: (int(opened.Head) - int(c.opened.Head)) / unit}
}

// print has the coding agent print something, and finds where in the log it is.
func (c *racer) print() (r authorityResult) {
	mark := c.mark('o')
	c.cli.output <- mark
	c.await(func(m protocol.Message) bool {
		data, ok := m.(protocol.Data)
		i := bytes.Index(data.Bytes, mark)
		if r.at = (int(data.Offset) + i - int(c.opened.Head)) / unit; ok && i >= 0 {
			return true
		}
		return false
	})
	return r
}

// renew ends a round after d: whoever is away may have lost control meanwhile,
// and everybody has a new grant at each relay.
func (r *race) renew(t *testing.T, d time.Duration) {
	t.Helper()
	r.round++
	for _, c := range r.clients {
		for user := range modelUsers {
			user++
			c.DropGrant(modelGrant(r.n, user, r.round-1))
			c.mayControlFor(modelUser(user), modelGrant(r.n, user, r.round), patience*time.Hour)
		}
	}
	now := time.Since(r.start)
	r.history = append(r.history, porcupine.Operation{
		ClientId: terminals*modelClients + r.n, Input: authorityOp{terminal: r.n, kind: opRound, now: now}, Output: authorityResult{},
		Call: r.clock.Add(1), Return: r.clock.Add(1),
	})
}

// TestAuthorityIsLinearizable is case 43: it has the clients of several terminals take, hand
// over, give back, revoke, leave, come back, type, print, and pause and resume a
// coding agent, whose turns begin and end, all at once, and time pass in between.
// What each of them saw
// must be explained by one order of the calls: who had control, under which
// term, and where in input and output things went.
func TestAuthorityIsLinearizable(t *testing.T) {
	seed := seedOf(t)
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost(t)
		h.reports = -1 // they are made faster here than hooks may
		var clock atomic.Int64
		races := make([]*race, terminals)
		for n := range races {
			races[n] = h.newRace(t, n, &clock, seed)
		}
		random := rand.New(rand.NewPCG(seed, 1<<32))
		waits := []time.Duration{
			0, 0, time.Second, protocol.ControlGrace - time.Millisecond, protocol.ControlGrace, protocol.ControlGrace + time.Millisecond,
		}
		for range max(1, *authorityOps/(terminals*modelClients*opsPerRound)) {
			d := waits[random.IntN(len(waits))]
			time.Sleep(d)
			synctest.Wait()
			var running sync.WaitGroup
			for _, r := range races {
				r.renew(t, d)
				for _, c := range r.clients {
					running.Go(c.run) // this waits for it
				}
			}
			running.Wait()
			if t.Failed() {
				return
			}
		}
		check(t, races)
	})
}

// check has porcupine judge the histories, and that they show something.
func check(t *testing.T, races []*race) {
	t.Helper()
	var history []porcupine.Operation
	for _, r := range races {
		history = append(history, r.history...)
		for _, c := range r.clients {
			history = append(history, c.history...)
		}
	}
	outcomes := map[string]int{}
	for _, operation := range history {
		outcomes[outcomeOf(operation)]++
	}
	t.Logf("%d calls: %v", len(history), outcomes)
	if result := porcupine.CheckOperationsTimeout(authorityModel, history, 0); result != porcupine.Ok {
		t.Fatalf("history of %d calls: %s", len(history), result)
	}
	for _, want := range []string{
		"propose", "propose conflict", "propose agent_running", "type", "type agent_running", "type not_controller", "type stale_term",
		"look grace", "look held", "look free",
	} {
		if outcomes[want] == 0 {
			t.Errorf("no call ended with %q: the history shows little", want)
		}
	}
}

func outcomeOf(operation porcupine.Operation) string {
	o, r := operation.Input.(authorityOp), operation.Output.(authorityResult)
	what := []string{"propose", "sockets", "revoke", "type", "pause", "resume", "turn", "start", "look", "print", "", "round"}[o.kind]
	if o.kind == opLook {
		return what + " " + string(r.lease.state)
	}
	return strings.TrimSpace(what + " " + string(r.refused))
}

// TestAuthorityModelHasTeeth shows porcupine what must not happen.
func TestAuthorityModelHasTeeth(t *testing.T) {
	record := func(ops ...authorityOp) (history []porcupine.Operation) {
		m := newAuthority
		for i, o := range ops {
			var r authorityResult
			m, r = m.step(o)
			history = append(history, porcupine.Operation{Input: o, Output: r, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		return history
	}
	good := record(
		authorityOp{kind: opRound}, authorityOp{kind: opPropose, user: 1, expect: 2}, authorityOp{kind: opType, term: 2},
		authorityOp{kind: opRevoke, user: 1}, authorityOp{kind: opType, term: 2}, authorityOp{kind: opPrint}, authorityOp{kind: opLook},
	)
	if !porcupine.CheckOperations(authorityModel, good) {
		t.Fatal("what may happen doesn't pass")
	}
	for name, spoil := range map[string]func(history []porcupine.Operation){
		"typed after a revoke": func(h []porcupine.Operation) { h[4].Output = authorityResult{at: 1} },
		"written twice":        func(h []porcupine.Operation) { h[2].Output = authorityResult{at: 1} },
		"output out of place":  func(h []porcupine.Operation) { h[5].Output = authorityResult{at: 1} },
		"another term": func(h []porcupine.Operation) {
			r := h[6].Output.(authorityResult)
			r.lease.term++
			h[6].Output = r
		},
	} {
		bad := slices.Clone(good)
		spoil(bad)
		if porcupine.CheckOperations(authorityModel, bad) {
			t.Errorf("%s: it passes", name)
		}
	}
}
