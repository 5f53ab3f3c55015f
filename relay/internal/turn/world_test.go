package turn_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

const (
	alice protocol.UserID = "usr_alice" // creates the terminal
	bob   protocol.UserID = "usr_bob"
	carol protocol.UserID = "usr_carol"
)

// A failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A world is a relay's State with its viewers, and what is on the way between it
// and a sandbox, which other worlds may share. After each step it checks what
// must always hold.
type world struct {
	t failer
	s turn.State
	*sandbox
	quick bool // steps are not checked: only what is written is

	// The viewers.
	sockets  map[turn.SocketID]turn.Joined // as they are now
	greeted  map[turn.SocketID]bool
	sent     map[turn.SocketID][]protocol.ServerMessage
	said     []protocol.ServerMessage // to all
	changes  int                      // StateChanged
	reckoned protocol.UserID          // the controller by the announcements alone
	working  protocol.AgentStateMessage
	nextID   turn.SocketID

	// The stream; messages wait until delivered.
	attached  bool
	toAgent   []protocol.Message
	fromAgent []protocol.Message
	unknown   uint64                  // the proposal without an answer
	present   map[protocol.UserID]int // sockets that the agent knows of
}

func newWorld(t failer) *world { return newSandbox(t).relay() }

// relay attaches one more relay to b.
func (b *sandbox) relay() *world {
	opened := b.opened()
	w := &world{
		t: b.t, sandbox: b,
		sockets: map[turn.SocketID]turn.Joined{}, greeted: map[turn.SocketID]bool{},
		sent:     map[turn.SocketID][]protocol.ServerMessage{},
		reckoned: opened.Lease.Holder,
		attached: true,
		present:  map[protocol.UserID]int{},
		s:        turn.New(opened),
	}
	w.working = protocol.AgentStateMessage{AgentState: protocol.AgentState(w.s.StateFor(0).AgentState), Agent: w.s.StateFor(0).Agent}
	b.relays = append(b.relays, w)
	return w
}

// step feeds e to the rules and carries out what follows.
func (w *world) step(e turn.Event) {
	w.t.Helper()
	if w.quick {
		var effects []turn.Effect
		w.s, effects = turn.Step(w.s, e)
		for _, effect := range effects {
			w.carryOut(effect)
		}
		return
	}
	before := spelled(w.s)
	next, effects := turn.Step(w.s, e)
	again, effectsAgain := turn.Step(w.s, e)
	if !reflect.DeepEqual(next, again) || !reflect.DeepEqual(effects, effectsAgain) || spelled(w.s) != before {
		w.t.Fatalf("%T%+v is not pure:\n%s\n%+v\n%+v", e, e, before, next, again)
	}
	w.s = next
	for _, effect := range effects {
		w.carryOut(effect)
	}
	w.check(e)
}

// spelled returns all that a state holds, behind pointers as well.
func spelled(s turn.State) string {
	var b strings.Builder
	var spell func(v reflect.Value)
	spell = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				spell(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				spell(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				spell(v.Index(i))
			}
		default:
			fmt.Fprint(&b, v)
		}
		b.WriteByte(';')
	}
	spell(reflect.ValueOf(s))
	return b.String()
}

func (w *world) carryOut(effect turn.Effect) {
	w.t.Helper()
	switch effect := effect.(type) {
	case turn.Propose:
		w.mustBeAttached(effect)
		if w.unknown != 0 || effect.Proposal.ID == 0 {
			w.t.Fatalf("proposal %d while %d has no answer", effect.Proposal.ID, w.unknown)
		}
		w.unknown = effect.Proposal.ID
		w.toAgent = append(w.toAgent, effect.Proposal)
	case turn.ReportHolder:
		w.mustBeAttached(effect)
		w.toAgent = append(w.toAgent, effect.Holder)
	case turn.Greet:
		if _, there := w.sockets[effect.Socket]; !there || w.greeted[effect.Socket] {
			w.t.Fatalf("socket %d greeted, there %v", effect.Socket, there)
		}
		w.greeted[effect.Socket] = true
	case turn.Broadcast:
		w.said = append(w.said, effect.Message)
		w.reckon(effect.Message)
	case turn.Send:
		if _, there := w.sockets[effect.Socket]; !there {
			w.t.Fatalf("%+v to socket %d, which is gone", effect.Message, effect.Socket)
		}
		w.sent[effect.Socket] = append(w.sent[effect.Socket], effect.Message)
	case turn.SendState:
		w.carryOut(turn.Send{Socket: effect.Socket, Message: w.s.StateFor(effect.Socket)})
	case turn.StateChanged:
		w.changes++
	}
}

func (w *world) mustBeAttached(effect turn.Effect) {
	w.t.Helper()
	if !w.attached {
		w.t.Fatalf("%T without a stream", effect)
	}
}

// reckon follows who has control as a client does that only listens to the
// events.
func (w *world) reckon(m protocol.ServerMessage) {
	w.t.Helper()
	from, to := w.reckoned, w.reckoned
	switch m := m.(type) {
	case protocol.AgentStateMessage:
		w.working = m
	case protocol.ControlTaken:
		if to = m.Controller; to != protocol.AgentHolder { // which asks nobody
			from = ""
		}
	case protocol.ControlGranted:
		if from, to = m.From, m.To; m.Controller != to {
			w.t.Fatalf("%+v", m)
		}
	case protocol.ControlRevoked:
		from, to = m.From, m.Controller
	case protocol.ControlExpired:
		from, to = m.From, m.Controller
	}
	if from != w.reckoned {
		w.t.Fatalf("%T%+v while %q has control", m, m, w.reckoned)
	}
	w.reckoned = to
}

// check looks for what must never be.
func (w *world) check(e turn.Event) {
	w.t.Helper()
	s := w.s.StateFor(0)
	confirmed := false
	for _, l := range w.was {
		confirmed = confirmed || l.Holder == s.Controller && l.Term == s.Term
	}
	if w.attached && !confirmed {
		w.t.Fatalf("%q in term %d was never confirmed: %+v", s.Controller, s.Term, w.was)
	}
	if s.Controller != w.s.Controller() || s.Term != w.s.Term() || s.Controller != w.reckoned {
		w.t.Fatalf("after %T%+v: controller %q, announced %q", e, e, s.Controller, w.reckoned)
	}
	if (protocol.AgentStateMessage{AgentState: protocol.AgentState(s.AgentState), Agent: s.Agent}) != w.working {
		w.t.Fatalf("after %T%+v: %+v, announced %+v", e, e, s, w.working)
	}
	for i, user := range s.Requests {
		if user == s.Controller || slices.Contains(s.Requests[:i], user) || w.controlling(user) == 0 {
			w.t.Fatalf("after %T%+v: %q in line %v, controller %q", e, e, user, s.Requests, s.Controller)
		}
	}
	locked := s.AgentState == string(protocol.AgentRunning) || s.Controller == protocol.AgentHolder
	for id, v := range w.sockets {
		reason, may := w.s.MayType(id, s.Term)
		if may != (v.CanControl && v.User == s.Controller && !locked) || may == (reason != "") ||
			(reason == protocol.RefusedAgentRunning) != (v.CanControl && locked) {
			w.t.Fatalf("socket %+v may type: %v, %q; %+v", v, may, reason, s)
		}
		if reason, may := w.s.MayType(id, s.Term+1); may || v.CanControl && locked != (reason == protocol.RefusedAgentRunning) {
			w.t.Fatalf("socket %+v may type under another term: %v, %q; %+v", v, may, reason, s)
		}
		if own := w.s.StateFor(id); own.You != v.User || own.CanControl != v.CanControl {
			w.t.Fatalf("%+v told %+v", v, own)
		}
	}
}

func (w *world) controlling(user protocol.UserID) (n int) {
	for _, v := range w.sockets {
		if v.User == user && v.CanControl {
			n++
		}
	}
	return n
}

// What viewers do.

func (w *world) join(user protocol.UserID) turn.SocketID { return w.joinAs(user, true) }

func (w *world) joinAs(user protocol.UserID, canControl bool) turn.SocketID {
	w.t.Helper()
	w.nextID++
	id := w.nextID
	v := turn.Joined{
		Socket: id, User: user, Name: string(user[len("usr_"):]),
		GrantID: protocol.GrantID(fmt.Sprintf("gr_%d", id)), CanControl: canControl,
		Owns: user == alice,
	}
	w.sockets[id] = v
	w.step(v)
	return id
}

func (w *world) leave(id turn.SocketID) {
	w.t.Helper()
	delete(w.sockets, id)
	w.step(turn.Left{Socket: id})
}

func (w *world) renew(id turn.SocketID, grant protocol.GrantID, canControl bool) {
	w.t.Helper()
	v := w.sockets[id]
	v.GrantID, v.CanControl = grant, canControl
	w.sockets[id] = v
	w.step(turn.Renewed{Socket: id, GrantID: grant, CanControl: canControl, Owns: v.Owns})
}

// types has a socket type, which reaches the agent if the relay lets it pass.
func (w *world) types(id turn.SocketID) {
	if term := w.s.Term(); w.attached {
		if _, may := w.s.MayType(id, term); may {
			w.toAgent = append(w.toAgent, protocol.Input{Term: term, Client: string(w.sockets[id].User)})
		}
	}
}

// What comes by the stream.

// obey has the agent act on one message.
func (w *world) obey() bool {
	if len(w.toAgent) == 0 {
		return false
	}
	m := w.toAgent[0]
	w.toAgent = w.toAgent[1:]
	w.sandbox.hears(w, m)
	return true
}

// hear has the relay hear one message of the agent.
func (w *world) hear() bool {
	w.t.Helper()
	if len(w.fromAgent) == 0 {
		return false
	}
	m := w.fromAgent[0]
	w.fromAgent = w.fromAgent[1:]
	switch m := m.(type) {
	case protocol.Leased:
		if m.ID != 0 {
			w.unknown = 0
		}
		w.step(turn.Leased{Leased: m})
	case protocol.AgentReport:
		w.step(turn.Reported{AgentReport: m})
	}
	return true
}

// settle delivers everything, at all relays.
func (w *world) settle() {
	w.t.Helper()
	for again := true; again; {
		again = false
		for _, w := range w.relays {
			for w.obey() || w.hear() {
				again = true
			}
		}
	}
}

func (w *world) detach() {
	w.t.Helper()
	if !w.attached {
		return
	}
	w.attached, w.toAgent, w.fromAgent, w.unknown = false, nil, nil, 0
	clear(w.present)
	holder := w.register.Lease(w.now).Holder
	if holder != protocol.AgentHolder && w.register.Sockets(holder, w.sandbox.present(holder), w.now) {
		w.changed(w)
	}
	w.step(turn.Detached{})
}

func (w *world) reattach() {
	w.t.Helper()
	if w.attached {
		return
	}
	w.attached = true
	opened := w.opened()
	w.reckoned = opened.Lease.Holder // by control_state
	changes := w.changes
	w.step(turn.Reattached{Opened: opened})
	if w.changes == changes {
		w.t.Fatalf("reattached, and nobody was told")
	}
}

// checkSettled settles and checks that both sides agree and nobody waits.
func (w *world) checkSettled() {
	w.t.Helper()
	w.settle()
	for id := range w.sockets {
		if !w.greeted[id] {
			w.t.Fatalf("socket %d was never greeted", id)
		}
	}
	if !w.attached {
		return
	}
	l := w.register.Lease(w.now)
	if w.unknown != 0 || w.s.Controller() != l.Holder || w.s.Term() != l.Term || (w.s.StateFor(0).GraceMS > 0) != (l.State == protocol.LeaseGrace) {
		w.t.Fatalf("relay: %+v, proposal %d; agent: %+v", w.s.StateFor(0), w.unknown, l)
	}
	state := protocol.AgentStopped
	if w.coding != nil {
		state = w.coding.State
	}
	if protocol.AgentState(w.s.StateFor(0).AgentState) != state || state == protocol.AgentRunning && l.Holder != protocol.AgentHolder {
		w.t.Fatalf("relay: %+v; coding agent %s, %+v", w.s.StateFor(0), state, l)
	}
	if s := w.s.StateFor(0); l.Idle && l.State == protocol.LeaseHeld && len(s.Requests) > 0 && !w.refused && !w.running() {
		w.t.Fatalf("%v wait for one who is idle: %+v", s.Requests, l)
	}
	if here := w.controlling(l.Holder); here > 0 && l.State != protocol.LeaseHeld {
		w.t.Fatalf("%d sockets, but %+v", here, l)
	}
}
