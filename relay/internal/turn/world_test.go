package turn_test

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/lease"
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

// A world is a relay's State with its viewers, an agent built on a lease
// register, and what is on the way between the two. After each step it checks
// what must always hold.
type world struct {
	t failer
	s turn.State

	// The viewers.
	sockets  map[turn.SocketID]turn.Joined // as they are now
	greeted  map[turn.SocketID]bool
	sent     map[turn.SocketID][]protocol.ServerMessage
	said     []protocol.ServerMessage // to all
	changes  int                      // StateChanged
	reckoned protocol.UserID          // the controller by the announcements alone
	nextID   turn.SocketID

	// The stream; messages wait until delivered.
	attached  bool
	toAgent   []protocol.Message
	fromAgent []protocol.Leased
	unknown   uint64 // the proposal without an answer

	// The agent.
	now      time.Time
	register *lease.Register
	present  map[protocol.UserID]int
	refusing bool                      // the agent accepts no grants
	was      map[uint64]protocol.Lease // by revision
}

func newWorld(t failer) *world {
	w := &world{
		t:       t,
		sockets: map[turn.SocketID]turn.Joined{}, greeted: map[turn.SocketID]bool{},
		sent:     map[turn.SocketID][]protocol.ServerMessage{},
		attached: true,
		now:      time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	w.newAgent()
	w.s = turn.New(alice, w.register.Claimed(), w.register.Lease(w.now))
	return w
}

func (w *world) newAgent() {
	w.register, w.present, w.was = lease.New(), map[protocol.UserID]int{}, map[uint64]protocol.Lease{}
	w.note()
}

// note remembers the lease as one that the agent has had.
func (w *world) note() protocol.Lease {
	l := w.register.Lease(w.now)
	w.was[l.Revision] = l
	return l
}

// step feeds e to the rules and carries out what follows.
func (w *world) step(e turn.Event) {
	w.t.Helper()
	before := fmt.Sprintf("%+v", w.s)
	next, effects := turn.Step(w.s, e)
	again, effectsAgain := turn.Step(w.s, e)
	if !reflect.DeepEqual(next, again) || !reflect.DeepEqual(effects, effectsAgain) || fmt.Sprintf("%+v", w.s) != before {
		w.t.Fatalf("%T%+v is not pure:\n%s\n%+v\n%+v", e, e, before, next, again)
	}
	w.s = next
	for _, effect := range effects {
		w.carryOut(effect)
	}
	w.check(e)
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
	case protocol.ControlTaken:
		from, to = "", m.Controller
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
	for i, user := range s.Requests {
		if user == s.Controller || slices.Contains(s.Requests[:i], user) || w.controlling(user) == 0 {
			w.t.Fatalf("after %T%+v: %q in line %v, controller %q", e, e, user, s.Requests, s.Controller)
		}
	}
	for id, v := range w.sockets {
		reason, may := w.s.MayType(id)
		if may != (v.CanControl && v.User == s.Controller) || may == (reason != "") {
			w.t.Fatalf("socket %+v may type: %v, controller %q", v, may, s.Controller)
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
	w.step(turn.Renewed{Socket: id, GrantID: grant, CanControl: canControl})
}

// What the agent does.

// obey has the agent act on one message.
func (w *world) obey() bool {
	if len(w.toAgent) == 0 {
		return false
	}
	m := w.toAgent[0]
	w.toAgent = w.toAgent[1:]
	switch m := m.(type) {
	case protocol.Holder:
		w.present[m.User] = m.Sockets
		if w.register.Sockets(m.User, m.Sockets, w.now) {
			w.fromAgent = append(w.fromAgent, protocol.Leased{Lease: w.note()})
		}
	case protocol.LeaseProposal:
		answer := protocol.Leased{ID: m.ID}
		if w.refusing {
			answer.Refused = "no such grant"
		} else if _, err := w.register.Propose(m, max(w.present[m.Next.Holder], 1), w.now); err != nil {
			answer.Refused = err.Error()
		} else if m.Next.Holder != "" && w.present[m.Next.Holder] == 0 {
			w.present[m.Next.Holder] = 1
		}
		answer.Lease = w.note()
		w.fromAgent = append(w.fromAgent, answer)
	}
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
	if m.ID != 0 {
		w.unknown = 0
	}
	w.step(turn.Leased{Leased: m})
	return true
}

// settle delivers everything.
func (w *world) settle() {
	w.t.Helper()
	for w.obey() || w.hear() {
	}
}

// wait lets time pass at the agent.
func (w *world) wait(d time.Duration) {
	w.now = w.now.Add(d)
	if w.register.Expire(w.now) {
		w.tell()
	}
}

// tell has the agent say what it has changed by itself.
func (w *world) tell() {
	l := w.note()
	if w.attached {
		w.fromAgent = append(w.fromAgent, protocol.Leased{Lease: l})
	}
}

// elsewhere changes the lease through another relay.
func (w *world) elsewhere(next protocol.LeaseNext) {
	p := protocol.LeaseProposal{ExpectRevision: w.register.Lease(w.now).Revision, Next: next}
	if _, err := w.register.Propose(p, 1, w.now); err == nil {
		w.tell()
	}
}

func (w *world) detach() {
	w.t.Helper()
	if !w.attached {
		return
	}
	w.attached, w.toAgent, w.fromAgent, w.unknown = false, nil, nil, 0
	clear(w.present)
	w.register.Sockets(w.register.Lease(w.now).Holder, 0, w.now)
	w.note()
	w.step(turn.Detached{})
}

func (w *world) reattach() {
	w.t.Helper()
	if w.attached {
		return
	}
	w.attached = true
	l := w.note()
	w.reckoned = l.Holder // by control_state
	changes := w.changes
	w.step(turn.Reattached{Opened: protocol.TerminalOpened{Creator: alice, Claimed: w.register.Claimed(), Lease: l}})
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
	if here := w.controlling(l.Holder); here > 0 && l.State != protocol.LeaseHeld {
		w.t.Fatalf("%d sockets, but %+v", here, l)
	}
}
