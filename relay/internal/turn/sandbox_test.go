package turn_test

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/lease"
)

// A sandbox is the agent of one terminal, built on a lease register, with a
// coding agent that comes and goes. Worlds are its relays.
type sandbox struct {
	t        failer
	relays   []*world
	now      time.Time
	register *lease.Register
	refusing bool                      // it accepts no grants
	refused  bool                      // it has not, at some time
	was      map[uint64]protocol.Lease // by revision
	written  int                       // inputs

	coding *protocol.AgentReport // nil: there never was one
	before protocol.LeaseNext    // who had control before it

	resumes protocol.AgentState // what it is when it is paused no more
}

func newSandbox(t failer) *sandbox {
	b := &sandbox{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.restart()
	return b
}

// restart forgets everything.
func (b *sandbox) restart() {
	b.register, b.was = lease.New(), map[uint64]protocol.Lease{}
	b.coding, b.before = nil, protocol.LeaseNext{}
	for _, w := range b.relays {
		w.detach()
	}
	b.note()
}

// note remembers the lease as one that the agent has had.
func (b *sandbox) note() protocol.Lease {
	l := b.register.Lease(b.now)
	b.was[l.Revision] = l
	return l
}

func (b *sandbox) opened() protocol.TerminalOpened {
	o := protocol.TerminalOpened{Creator: alice, Claimed: b.register.Claimed(), Lease: b.note()}
	if b.coding != nil {
		report := *b.coding
		o.Agent = &report
	}
	return o
}

// present counts a user's sockets at all relays, as far as they have told.
func (b *sandbox) present(user protocol.UserID) (n int) {
	for _, w := range b.relays {
		n += w.present[user]
	}
	return n
}

// tell says m to all relays but one.
func (b *sandbox) tell(m protocol.Message, except *world) {
	for _, w := range b.relays {
		if w.attached && w != except {
			w.fromAgent = append(w.fromAgent, m)
		}
	}
}

// changed says how the lease stands, without having been asked.
func (b *sandbox) changed(except *world) { b.tell(protocol.Leased{Lease: b.note()}, except) }

func (b *sandbox) running() bool { return b.coding != nil && b.coding.State == protocol.AgentRunning }

// hears has the agent act on a message of one relay.
func (b *sandbox) hears(w *world, m protocol.Message) {
	b.t.Helper()
	switch m := m.(type) {
	case protocol.Holder:
		w.present[m.User] = m.Sockets
		if b.register.Sockets(m.User, b.present(m.User), b.now) {
			b.changed(nil)
		}
	case protocol.LeaseProposal:
		w.fromAgent = append(w.fromAgent, b.proposed(w, m))
	case protocol.Input:
		if _, ok := b.register.Check(m.Term); !ok || b.running() {
			return
		}
		if l := b.register.Lease(b.now); string(l.Holder) != m.Client || l.Term != m.Term {
			b.t.Fatalf("%s typed in term %d, and now it is %+v", m.Client, m.Term, l)
		}
		b.written++
		if b.register.Typed(b.now) {
			b.changed(nil)
		}
	}
}

func (b *sandbox) proposed(w *world, m protocol.LeaseProposal) protocol.Leased {
	answer := protocol.Leased{ID: m.ID}
	revision := b.register.Lease(b.now).Revision
	switch _, err := b.propose(m, max(b.present(m.Next.Holder), 1)); {
	case err != nil:
		answer.Refused = err.Error()
	case m.Next.Holder != "" && b.present(m.Next.Holder) == 0:
		w.present[m.Next.Holder] = 1
	}
	answer.Lease = b.note()
	if answer.Lease.Revision != revision {
		b.changed(w)
	}
	return answer
}

func (b *sandbox) propose(m protocol.LeaseProposal, sockets int) (protocol.Lease, error) {
	switch {
	case b.running():
		return protocol.Lease{}, protocol.Errorf(protocol.KindConflict, "a coding agent runs")
	case b.refusing:
		b.refused = true
		return protocol.Lease{}, protocol.Errorf(protocol.KindForbidden, "no such grant")
	}
	if m.Next.Reason == protocol.ReasonOwner && m.Next.Holder != alice {
		b.t.Fatalf("%+v, which is not the owner's", m)
	}
	return b.register.Propose(m, sockets, b.now)
}

// elsewhere changes the lease through a relay that no test plays.
func (b *sandbox) elsewhere(next protocol.LeaseNext) {
	p := protocol.LeaseProposal{ExpectRevision: b.register.Lease(b.now).Revision, Next: next}
	if b.running() {
		return
	}
	if _, err := b.register.Propose(p, 1, b.now); err == nil {
		b.changed(nil)
	}
}

// wait lets time pass.
func (b *sandbox) wait(d time.Duration) {
	b.now = b.now.Add(d)
	if b.register.Expire(b.now) || b.register.Rest(b.now) {
		b.changed(nil)
	}
}

// What the coding agent does. leaseFirst says in which order it is told.

func (b *sandbox) start(name string, leaseFirst bool) {
	if b.coding == nil || b.coding.State == protocol.AgentStopped {
		b.takes(protocol.AgentReport{State: protocol.AgentRunning, Name: name}, leaseFirst)
	}
}

func (b *sandbox) pause(leaseFirst bool) {
	if b.coding == nil || b.coding.State != protocol.AgentRunning && b.coding.State != protocol.AgentWaiting {
		return
	}
	b.resumes = b.coding.State
	b.yields(b.as(protocol.AgentPaused), leaseFirst)
}

func (b *sandbox) resume(leaseFirst bool) {
	switch {
	case b.coding == nil || b.coding.State != protocol.AgentPaused:
	case b.resumes == protocol.AgentWaiting:
		b.yields(b.as(protocol.AgentWaiting), leaseFirst)
	default:
		b.takes(b.as(protocol.AgentRunning), leaseFirst)
	}
}

// endTurn has the coding agent wait for a prompt.
func (b *sandbox) endTurn(leaseFirst bool) {
	switch {
	case b.running():
		b.yields(b.as(protocol.AgentWaiting), leaseFirst)
	case b.coding != nil && b.coding.State == protocol.AgentPaused:
		b.resumes = protocol.AgentWaiting
	}
}

// beginTurn has the coding agent work on one.
func (b *sandbox) beginTurn(leaseFirst bool) {
	switch {
	case b.coding == nil:
	case b.coding.State == protocol.AgentWaiting:
		b.takes(b.as(protocol.AgentRunning), leaseFirst)
	case b.coding.State == protocol.AgentPaused:
		b.resumes = protocol.AgentRunning
	}
}

func (b *sandbox) stop(leaseFirst bool) {
	if b.coding != nil && b.coding.State != protocol.AgentStopped {
		now := b.as(protocol.AgentStopped)
		now.ExitCode = new(int)
		b.yields(now, leaseFirst)
	}
}

// as returns the coding agent in another state.
func (b *sandbox) as(state protocol.AgentState) protocol.AgentReport {
	return protocol.AgentReport{State: state, Name: b.coding.Name}
}

// toolTakes has a program take control to type, if nobody has it.
func (b *sandbox) toolTakes() {
	b.wait(0)
	if b.register.Lease(b.now).Holder == "" && !b.running() {
		b.assign(protocol.LeaseNext{Holder: protocol.AgentHolder})
		b.changed(nil)
	}
}

// toolGives has it give control back.
func (b *sandbox) toolGives() {
	if b.register.Lease(b.now).Holder == protocol.AgentHolder && !b.running() {
		b.assign(protocol.LeaseNext{})
		b.changed(nil)
	}
}

func (b *sandbox) takes(now protocol.AgentReport, leaseFirst bool) {
	b.wait(0) // or a grace that is over would be in the way
	l := b.register.Lease(b.now)
	b.before = protocol.LeaseNext{Holder: l.Holder, GrantID: l.GrantID}
	if l.Holder == protocol.AgentHolder { // a program, which gets nothing back
		b.before = protocol.LeaseNext{}
		b.assign(protocol.LeaseNext{})
	}
	b.turn(now, protocol.LeaseNext{Holder: protocol.AgentHolder}, leaseFirst)
}

// yields gives control back to who had it and is still there.
func (b *sandbox) yields(now protocol.AgentReport, leaseFirst bool) {
	if !b.running() {
		b.coding = &now
		b.tell(now, nil)
		return
	}
	next := b.before
	if b.present(next.Holder) == 0 {
		next = protocol.LeaseNext{}
	}
	b.turn(now, next, leaseFirst)
}

// assign makes next the holder.
func (b *sandbox) assign(next protocol.LeaseNext) {
	b.t.Helper()
	p := protocol.LeaseProposal{ExpectRevision: b.register.Lease(b.now).Revision, Next: next}
	if _, err := b.register.Propose(p, 1, b.now); err != nil {
		b.t.Fatalf("%+v: %v", p, err)
	}
}

func (b *sandbox) turn(now protocol.AgentReport, next protocol.LeaseNext, leaseFirst bool) {
	b.t.Helper()
	b.assign(next)
	b.coding = &now
	if leaseFirst {
		b.changed(nil)
	}
	b.tell(now, nil)
	if !leaseFirst {
		b.changed(nil)
	}
}
