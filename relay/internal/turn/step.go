package turn

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// Step returns the state after e and the effects, in order. It depends only on
// its arguments, and changes neither.
func Step(s State, e Event) (State, []Effect) {
	t := step{State: s}
	switch e := e.(type) {
	case Joined:
		t.joined(e)
	case Left:
		t.left(e.Socket)
	case Renewed:
		t.renewed(e)
	case Succeeded:
		t.succeeded(e)
	case Requested:
		t.wants(intent{kind: request, socket: e.Socket})
	case Taken:
		t.wants(intent{kind: take, socket: e.Socket})
	case TakenBack:
		t.wants(intent{kind: takeBack, socket: e.Socket})
	case Keyed:
		t.keyed(e.Socket)
	case Cancelled:
		t.wants(intent{kind: cancel, socket: e.Socket})
	case Granted:
		t.wants(intent{kind: handOver, socket: e.Socket, to: e.To})
	case Revoked:
		t.wants(intent{kind: giveBack, socket: e.Socket})
	case Leased:
		t.leased(e.Leased)
	case Reported:
		t.reported(e.AgentReport)
	case Detached:
		t.attached = false
		t.forgetIntents()
	case Reattached:
		t.reattached(e.Opened)
	}
	t.proceed()
	return t.State, t.effects
}

// A step is one Step in progress. The old state shares its slices, so they are
// replaced, never modified.
type step struct {
	State
	effects []Effect
}

func (t *step) emit(e Effect) { t.effects = append(t.effects, e) }

func (t *step) fail(id SocketID, kind protocol.Kind, message string) {
	if _, there := t.people.socket(id); there {
		t.emit(Send{id, protocol.ErrorMessage{Name: kind.Name(), Message: message}})
	}
}

// report tells the agent how many sockets a user has.
func (t *step) report(user protocol.UserID, sockets int) {
	if t.attached {
		t.emit(ReportHolder{protocol.Holder{User: user, Sockets: sockets}})
	}
}

func (t *step) joined(e Joined) {
	if _, known := t.people.socket(e.Socket); known {
		return
	}
	v := socket{e.Socket, e.User, e.Name, e.GrantID, e.CanControl && human(e.User), e.Owns}
	t.people = t.people.with(v)
	t.arrived(v)
	if v.canControl && v.user == t.creator && t.claimable() && !t.hasIntent(claim) {
		t.first(intent{kind: claim, socket: v.id}) // greets it
		return
	}
	t.emit(Greet{v.id})
}

// arrived tells the agent of a user's first socket that may control.
func (t *step) arrived(v socket) {
	if !v.canControl {
		return
	}
	if _, n := t.people.controlling(v.user); n == 1 {
		t.report(v.user, n)
	}
}

func (t *step) left(id SocketID) {
	before, known := t.people.socket(id)
	if !known {
		return
	}
	t.people = t.people.without(before)
	t.queue = slices.DeleteFunc(slices.Clone(t.queue), func(w intent) bool { return w.socket == id && w.kind.ofViewer() })
	t.lessOf(before)
}

func (t *step) renewed(e Renewed) {
	before, known := t.people.socket(e.Socket)
	if !known {
		return
	}
	now := before
	now.grant, now.canControl, now.owns = e.GrantID, e.CanControl && human(before.user), e.Owns
	t.people = t.people.with(now)
	if !before.canControl {
		t.arrived(now)
	}
	t.lessOf(before)
	if now.canControl != before.canControl || now.owns != before.owns {
		t.emit(SendState{now.id})
	}
}

// succeeded moves the viewers of one grant, and the lease, to another.
func (t *step) succeeded(e Succeeded) {
	for _, sockets := range t.people.sockets.all() { // of those before the change
		for _, v := range sockets {
			if v.grant == e.From {
				v.grant = e.To
				t.people = t.people.with(v)
			}
		}
	}
	if t.lease.GrantID == e.From && human(t.lease.Holder) {
		t.renewLease()
	}
}

// lessOf handles what ends with a socket, or with its former grant.
func (t *step) lessOf(before socket) {
	if !before.canControl {
		return
	}
	if _, n := t.people.controlling(before.user); n == 0 {
		t.report(before.user, 0)
		if t.dropRequest(before.user) {
			t.emit(StateChanged{})
		}
	}
	if before.user == t.lease.Holder && before.grant == t.lease.GrantID {
		t.renewLease()
	}
}

// renewLease moves the lease to a grant that its holder still has.
func (t *step) renewLease() {
	if t.attached && t.outlived() && !t.hasIntent(renew) {
		t.first(intent{kind: renew})
	}
}

// dropRequest removes a user's request from the line, if any.
func (t *step) dropRequest(user protocol.UserID) bool {
	at := slices.Index(t.requests, user)
	if at < 0 {
		return false
	}
	t.requests = slices.Delete(slices.Clone(t.requests), at, at+1)
	return true
}

// leased handles the agent's report and continues the intent that it answers.
func (t *step) leased(m protocol.Leased) {
	if !t.attached {
		return
	}
	t.adopt(m.Lease)
	if m.ID == 0 || m.ID != t.proposal.ID {
		return
	}
	w, expected := t.underway, t.proposal.ExpectRevision
	t.underway, t.proposal = intent{}, protocol.LeaseProposal{}
	switch {
	case m.Refused == "":
		t.done(w)
	case m.Lease.Revision == expected:
		t.refuse(w, protocol.KindForbidden, "the sandbox did not accept the change of control")
	case w.tries >= maxTries:
		t.refuse(w, protocol.KindConflict, "control keeps changing, try again")
	default:
		t.first(w) // judged again, by the present lease
	}
}

// adopt makes l the lease and announces what changed. It ignores an older
// revision.
func (t *step) adopt(l protocol.Lease) {
	old := t.lease
	if l.Revision <= old.Revision {
		return
	}
	t.lease = l
	t.claimed = t.claimed || human(l.Holder)
	t.announce(old)
	served := t.dropRequest(l.Holder)
	if served || l.Holder != old.Holder || l.Term != old.Term || l.State != old.State {
		t.emit(StateChanged{})
	}
	if _, n := t.people.controlling(l.Holder); n > 0 && l.Holder != old.Holder {
		t.report(l.Holder, n) // it may have joined before this stream
	}
	t.yieldIdle()
	switch {
	case old.Holder == protocol.AgentHolder:
		t.renewLease() // the first in line may have a newer grant
		t.letClaim()
	case l.Holder == old.Holder && l.State == protocol.LeaseHeld && old.State == protocol.LeaseGrace:
		t.renewLease() // the returned holder may have a newer grant
	}
}

// announce tells everybody about the change of control from old.
func (t *step) announce(old protocol.Lease) {
	l := t.lease
	switch {
	case l.Holder == old.Holder && l.Term == old.Term:
	case l.Holder == "" && old.Holder == "": // held in between, unseen
	case l.Holder == "" && old.State == protocol.LeaseGrace:
		t.emit(Broadcast{protocol.ControlExpired{From: old.Holder}})
	case l.Holder == "":
		t.emit(Broadcast{protocol.ControlRevoked{From: old.Holder}})
	case old.Holder == "" || old.Holder == l.Holder || l.Holder == protocol.AgentHolder:
		t.emit(Broadcast{protocol.ControlTaken{Controller: l.Holder, Term: l.Term}})
	default:
		t.emit(Broadcast{protocol.ControlGranted{From: old.Holder, To: l.Holder, Controller: l.Holder, Term: l.Term, Reason: l.Reason}})
	}
}

// reported handles the agent's report of the coding agent. If a lease report is
// about to follow, control_state waits for it: half of the change would be
// contradictory.
func (t *step) reported(r protocol.AgentReport) {
	if t.attached && t.follow(codingOf(&r)) {
		if !t.torn() {
			t.emit(StateChanged{})
		}
		t.letClaim()
	}
}

// follow stores the coding agent's state and tells everybody, if it is new.
func (t *step) follow(coding protocol.AgentStateMessage) (changed bool) {
	if coding == t.coding {
		return false
	}
	t.coding = coding
	t.emit(Broadcast{coding})
	return true
}

// letClaim gives control to the creator if no person has had it.
func (t *step) letClaim() {
	if t.claimable() && !t.hasIntent(claim) {
		t.first(intent{kind: claim})
	}
}

// reattached starts from the agent's present state. The agent may have
// restarted and remember nothing.
func (t *step) reattached(o protocol.TerminalOpened) {
	t.forgetIntents()
	t.attached = true
	t.follow(codingOf(o.Agent))
	t.State = t.following(o)
	t.dropRequest(t.lease.Holder)
	t.emit(StateChanged{})
	switch holder := t.lease.Holder; {
	case human(holder):
		_, n := t.people.controlling(holder)
		t.report(holder, n)
		t.renewLease()
	case holder != "":
		t.reportAll()
	}
	t.letClaim()
	t.yieldIdle()
}

// reportAll tells the agent about everybody present: only the agent knows from
// whom a coding agent has taken control, and to whom it will yield.
func (t *step) reportAll() {
	for user := range t.people.sockets.all() {
		if _, n := t.people.controlling(user); n > 0 {
			t.report(user, n)
		}
	}
}
