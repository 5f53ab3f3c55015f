package turn

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// An intentKind is a kind of change of control.
type intentKind uint8

const (
	request  intentKind = iota + 1 // control, or a place in line
	take                           // control, if it is free
	takeBack                       // control, whoever has it
	cancel                         // leave the line
	handOver                       // another controller
	giveBack                       // no controller
	key                            // control if it is free, for typed input; decided silently
	claim                          // the creator as the first controller
	renew                          // another grant of the same controller
	yield                          // the idle controller yields to the first in line
)

// ofViewer reports whether a viewer made the request and gets an answer.
func (k intentKind) ofViewer() bool { return k < key }

// An intent is a requested change of control that waits for the agent or its turn.
// Intents are handled one at a time, each by the lease of that moment.
type intent struct {
	kind   intentKind
	socket SocketID        // whose; for a claim, the one to greet when it is decided, 0 for none
	to     protocol.UserID // of handOver
	tries  int             // proposals made
}

// yieldsOf reports whether w is a viewer's request to give up control.
func (w intent) yieldsOf(id SocketID) bool {
	return w.socket == id && (w.kind == handOver || w.kind == giveBack)
}

// wants handles a viewer's request.
func (t *step) wants(w intent) {
	switch {
	case !t.attached && w.kind != cancel:
		t.fail(w.socket, protocol.KindUnavailable, "the sandbox is not connected")
	case len(t.queue) >= maxQueued:
		t.fail(w.socket, protocol.KindTooMany, "too many requests at once")
	default:
		t.queue = append(slices.Clip(t.queue), w)
	}
}

// first puts w before all others.
func (t *step) first(w intent) {
	t.queue = slices.Insert(slices.Clip(t.queue), 0, w)
}

func (t *step) hasIntent(k intentKind) bool {
	return t.proposal.ID != 0 && t.underway.kind == k ||
		slices.ContainsFunc(t.queue, func(w intent) bool { return w.kind == k })
}

// keyed notes a viewer's key that takes the terminal.
func (t *step) keyed(id SocketID) {
	if t.Free() && t.MayControl(id) && len(t.queue) < maxQueued {
		t.queue = append(slices.Clip(t.queue), intent{kind: key, socket: id})
	}
}

// idle reports whether the controller must yield to the first in line.
func (t *step) idle() bool {
	return t.attached && t.lease.Idle && t.lease.State == protocol.LeaseHeld && human(t.lease.Holder) && len(t.requests) > 0
}

// yieldIdle makes an idle controller yield. It is called after what can cause
// that: the agent's report, or another request.
func (t *step) yieldIdle() {
	if t.idle() && !t.hasIntent(yield) {
		t.queue = append(slices.Clip(t.queue), intent{kind: yield})
	}
}

// proceed handles intents until one needs the agent.
func (t *step) proceed() {
	for t.proposal.ID == 0 && len(t.queue) > 0 {
		w := t.queue[0]
		t.queue = t.queue[1:]
		t.judge(w)
	}
}

// forgetIntents drops those that need an agent, as there is none.
func (t *step) forgetIntents() {
	forgotten := t.queue
	if t.proposal.ID != 0 {
		forgotten = append([]intent{t.underway}, forgotten...)
	}
	t.underway, t.proposal, t.queue = intent{}, protocol.LeaseProposal{}, nil
	for _, w := range forgotten {
		t.refuse(w, protocol.KindUnavailable, "the sandbox is not connected")
	}
}

// done ends an intent after its decision.
func (t *step) done(w intent) {
	if _, there := t.people.socket(w.socket); there && w.kind == claim {
		t.emit(Greet{w.socket})
	}
}

func (t *step) refuse(w intent, kind protocol.Kind, message string) {
	if w.kind.ofViewer() {
		t.fail(w.socket, kind, message)
	}
	t.done(w)
}

// propose asks the agent to give the lease to another holder, or to free it.
func (t *step) propose(w intent, next protocol.LeaseNext) {
	w.tries++
	t.lastID++
	t.underway = w
	t.proposal = protocol.LeaseProposal{ID: t.lastID, ExpectRevision: t.lease.Revision, Next: next}
	t.emit(Propose{t.proposal})
}

// judge decides an intent by the present lease, or asks the agent.
func (t *step) judge(w intent) {
	switch w.kind {
	case claim:
		if !t.claimable() {
			t.done(w)
			return
		}
		v, _ := t.people.controlling(t.creator)
		t.propose(w, protocol.LeaseNext{Holder: v.user, GrantID: v.grant})
	case renew:
		if t.outlived() {
			v, _ := t.people.controlling(t.lease.Holder)
			t.propose(w, protocol.LeaseNext{Holder: v.user, GrantID: v.grant})
		}
	case key:
		if v, there := t.people.socket(w.socket); there && v.canControl && t.Free() {
			t.propose(w, protocol.LeaseNext{Holder: v.user, GrantID: v.grant})
		}
	case yield:
		if t.idle() {
			v, _ := t.people.controlling(t.requests[0])
			t.propose(w, protocol.LeaseNext{Holder: v.user, GrantID: v.grant, Reason: protocol.ReasonIdle})
		}
	default:
		if v, there := t.people.socket(w.socket); there {
			t.judgeViewer(w, v)
		}
	}
}

func (t *step) judgeViewer(w intent, v socket) {
	hasControl := v.canControl && v.user == t.lease.Holder
	switch {
	case w.kind == cancel:
		if t.dropRequest(v.user) {
			t.emit(StateChanged{})
		}
	case !v.canControl:
		t.refuse(w, protocol.KindForbidden, "your access does not include control")
	case w.kind == takeBack && !v.owns:
		t.refuse(w, protocol.KindForbidden, "only who owns the session can take control back")
	case hasControl && (w.kind == request || w.kind == take || w.kind == takeBack):
		// Has it already: seed 001's client still waits for the answer.
		t.emit(Send{v.id, protocol.ControlTaken{Controller: t.lease.Holder, Term: t.lease.Term}})
		t.emit(SendState{v.id})
	case w.kind == request && t.Locked():
		t.queueUp(w, v.user)
	case t.Locked():
		t.refuse(w, protocol.KindConflict, t.agentHas())
	case w.kind == handOver && hasControl:
		t.judgeHandOver(w)
	case w.kind == giveBack && hasControl:
		t.propose(w, protocol.LeaseNext{})
	case w.kind == handOver || w.kind == giveBack:
		t.refuse(w, protocol.KindForbidden, "only the controller can do this")
	case t.lease.Holder == "":
		t.propose(w, protocol.LeaseNext{Holder: v.user, GrantID: v.grant})
	case w.kind == takeBack:
		t.propose(w, protocol.LeaseNext{Holder: v.user, GrantID: v.grant, Reason: protocol.ReasonOwner})
	case w.kind == take:
		t.refuse(w, protocol.KindConflict, t.people.nameOf(t.lease.Holder)+" has control")
	default:
		t.queueUp(w, v.user)
	}
}

func (t *step) judgeHandOver(w intent) {
	to, n := t.people.controlling(w.to)
	switch {
	case w.to == t.lease.Holder:
		t.emit(SendState{w.socket})
	case n > 0:
		t.propose(w, protocol.LeaseNext{Holder: to.user, GrantID: to.grant})
	case len(t.people.of(w.to)) > 0:
		t.refuse(w, protocol.KindForbidden, "that user's access does not include control")
	default:
		t.refuse(w, protocol.KindNotFound, "that user is not connected")
	}
}

// queueUp gives a user a place in line, once.
func (t *step) queueUp(w intent, user protocol.UserID) {
	switch {
	case slices.Contains(t.requests, user):
	case len(t.requests) >= maxRequests:
		t.refuse(w, protocol.KindTooMany, "too many users wait for control")
	default:
		t.requests = append(slices.Clip(t.requests), user)
		t.emit(Broadcast{protocol.ControlRequested{From: user, Requests: t.requests}})
		t.emit(StateChanged{})
		t.yieldIdle()
	}
}
