package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
)

const (
	// resizeEvery is the least time between two resizes; of those in between
	// the last one counts. Each redraws the whole screen of most programs.
	resizeEvery = 50 * time.Millisecond
	// noDeadline is how long to wait when nothing is due.
	noDeadline = 24 * time.Hour
	// maxPresent bounds the users whose sockets an attachment remembers.
	// Beyond it a user counts as absent.
	maxPresent = 4096
)

// A sizeLimiter spaces resizes. The arbiter's mu guards it.
type sizeLimiter struct {
	cols, rows int       // asked for and not yet applied; 0 when there is none
	last       time.Time // when a size was last applied
}

// control says who may type, and by what right. The arbiter's mu guards it.
type control struct {
	lease *lease.Register
	grant *jws.Grant // under which the lease is held; nil: it is free, or a coding agent's
	lent  uint64     // the term under which somebody types for a tool, if that took control for it
	due   time.Time  // when a grant ends or somebody is out of grants; zero: never
}

// Propose asks for a change of the lease. LEASED answers it, on this
// attachment with p's id and on all others with none. The next holder needs a
// grant of this attachment that allows to control the terminal; freeing the
// lease needs none. Nothing changes while a coding agent runs or is being
// stopped. A relay proposes
// only those who are connected to it.
func (a *Attachment) Propose(p protocol.LeaseProposal) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if a.err != nil {
		return
	}
	grant, err := a.mayHold(p.Next, now)
	switch {
	case !t.ended.IsZero():
		a.refuseProposal(p.ID, protocol.KindEnded.Text())
		return
	case t.stage.locked():
		a.refuseProposal(p.ID, string(protocol.RefusedAgentRunning))
		return
	case err != nil:
		a.refuseProposal(p.ID, err.Error())
		return
	case p.Next.Reason == protocol.ReasonOwner && !t.owns(grant):
		a.refuseProposal(p.ID, "the grant does not allow to take control back")
		return
	}
	next := p.Next.Holder
	if _, err := t.control.lease.Propose(p, max(t.sockets(next), 1), now); err != nil {
		a.refuseProposal(p.ID, protocol.AsError(err).Error())
		return
	}
	if next != "" && a.present[next] == 0 {
		a.setPresent(next, 1)
	}
	t.control.heldUnder(grant)
	t.leaseChanged(a, p.ID)
}

// assign makes next the holder, or frees the lease, as the terminal itself
// decides. A holder who stays gets a new term all the same. The caller holds mu; leaseChanged must follow.
func (b *arbiter) assign(next protocol.LeaseNext, grant *jws.Grant) {
	now := time.Now()
	steps := []protocol.LeaseNext{next}
	if held := b.control.lease.Lease(now); next.Holder != "" && held.Holder == next.Holder {
		steps = []protocol.LeaseNext{{}, next}
	}
	b.control.lease.Expire(now)
	for _, step := range steps {
		p := protocol.LeaseProposal{ExpectRevision: b.control.lease.Lease(now).Revision, Next: step}
		sockets := b.sockets(step.Holder)
		if step.Holder == protocol.AgentHolder {
			sockets = 1
		}
		if _, err := b.control.lease.Propose(p, sockets, now); err != nil {
			panic("terminal: a lease can't be assigned: " + err.Error()) // its revision is the present one
		}
	}
	b.control.heldUnder(grant)
}

// RefuseProposal answers the proposal id with the lease as it stands, for a
// caller that found the proposal wanting itself.
func (a *Attachment) RefuseProposal(id uint64, reason string) {
	a.terminal.mu.Lock()
	defer a.terminal.mu.Unlock()
	a.refuseProposal(id, reason)
}

// refuseProposal answers the proposal id with the lease as it stands. The
// caller holds arbiter.mu.
func (a *Attachment) refuseProposal(id uint64, reason string) {
	a.post(protocol.Leased{ID: id, Lease: a.terminal.control.lease.Lease(time.Now()), Refused: reason})
}

// Holder notes how many sockets a user has at the relay of this attachment.
// When the lease's holder has none left anywhere, the grace begins; it ends
// when one is back. A coding agent that holds it has no sockets to lose.
func (a *Attachment) Holder(h protocol.Holder) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.err != nil || h.User == protocol.AgentHolder {
		return
	}
	a.setPresent(h.User, h.Sockets)
	t.present(h.User)
}

// setPresent notes how many sockets user has at this relay. The caller holds
// arbiter.mu.
func (a *Attachment) setPresent(user protocol.UserID, sockets int) {
	if sockets == 0 {
		delete(a.present, user)
		return
	}
	if _, known := a.present[user]; known || len(a.present) < maxPresent {
		a.present[user] = sockets
	}
}

// sockets counts a user's sockets at all relays. The caller holds mu.
func (b *arbiter) sockets(user protocol.UserID) (n int) {
	for a := range b.attachments {
		n += a.present[user]
	}
	return n
}

// present tells the lease how many sockets user has. The caller holds mu.
func (b *arbiter) present(user protocol.UserID) {
	if b.ended.IsZero() && b.control.lease.Sockets(user, b.sockets(user), time.Now()) {
		b.leaseChanged(nil, 0)
	}
}

// leaseChanged announces the lease and refuses what was typed under another.
// The proposer, if any, gets it as the answer to its proposal id. The caller
// holds mu.
func (b *arbiter) leaseChanged(proposer *Attachment, id uint64) {
	leased := protocol.Leased{Lease: b.control.lease.Lease(time.Now())}
	if leased.Lease.Holder == "" {
		b.control.grant = nil
	}
	if b.site.leased != nil {
		b.site.leased(leased.Lease)
	}
	for a := range b.attachments {
		leased.ID = 0 // unasked
		if a == proposer {
			leased.ID = id
		}
		a.post(leased)
	}
	b.refuseStale()
	b.poke()
}

// Resize asks for another size under r's term; under any other, and while a
// coding agent runs or is being stopped, nothing happens. The size becomes an
// event in the log once it is applied, which may take a moment when sizes follow
// each other closely. Resize waits while a chunk of output, of 32 KiB at most, is
// parsed and masked.
func (a *Attachment) Resize(r protocol.Resize) {
	t := a.terminal
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.resize(r.Cols, r.Rows, func() error {
		if reason, ok := t.mayType(r.Term); !ok {
			return notTyped(reason)
		}
		return a.err
	})
}

// Resize gives the terminal id of session another size, whoever controls it. It
// fails with KindInvalid for a size below protocol.MinCols × protocol.MinRows,
// takes one beyond the largest as that, and fails with KindEnded when the
// program has ended. The size is in force a moment later when sizes follow each
// other closely.
func (h *Host) Resize(session protocol.SessionID, id protocol.PTYID, cols, rows int) error {
	if cols < protocol.MinCols || rows < protocol.MinRows {
		return protocol.Errorf(protocol.KindInvalid, "not a size: %d×%d", cols, rows)
	}
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	return t.resize(cols, rows, func() error {
		if !t.ended.IsZero() {
			return protocol.Errorf(protocol.KindEnded, "the program has ended")
		}
		return nil
	})
}

// resize asks for another size, unless may, which is called with mu held, says
// what is against it. The caller holds view.mu, and not arbiter.mu.
func (t *Terminal) resize(cols, rows int, may func() error) error {
	t.mu.Lock()
	if err := may(); err != nil {
		t.mu.Unlock()
		return err
	}
	t.size.cols = min(max(cols, protocol.MinCols), protocol.MaxCols)
	t.size.rows = min(max(rows, protocol.MinRows), protocol.MaxRows)
	cols, rows, wait := t.takeSize(time.Now())
	t.mu.Unlock()
	if wait > 0 {
		t.poke()
	}
	if cols > 0 {
		t.resized(cols, rows)
	}
	return nil
}

// takeSize gives the program in front the size asked for, and returns it for the
// screen and the log. It is 0 when there is none, or it has to wait so long. The
// caller holds arbiter.mu, and for resized view.mu.
func (t *Terminal) takeSize(now time.Time) (cols, rows int, wait time.Duration) {
	if t.size.cols == 0 {
		return 0, 0, 0
	}
	if wait := t.size.last.Add(resizeEvery).Sub(now); wait > 0 {
		return 0, 0, wait
	}
	cols, rows = t.size.cols, t.size.rows
	t.size = sizeLimiter{last: now}
	if err := t.stage.front.dev.Resize(cols, rows); err != nil {
		t.log.Warn("resizing a terminal failed", "error", err)
		return 0, 0, 0
	}
	return cols, rows, 0
}

// poke has keep look at its deadlines again.
func (b *arbiter) poke() {
	select {
	case b.changed <- struct{}{}:
	default: // it has yet to look
	}
}

// tick does what is due and returns how long until something is again.
func (t *Terminal) tick() time.Duration {
	now := time.Now()
	next := t.tickControl(now) // first: a grace that is over waits for no parsing
	return max(min(next, t.tickDisplay(now)), 0)
}

// tickControl does what is due of who may type and what they are told.
func (b *arbiter) tickControl(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control.lease.Expire(now) || b.control.lease.Rest(now) {
		b.leaseChanged(nil, 0)
	}
	next := noDeadline
	if deadline, ok := b.control.lease.Deadline(); ok {
		next = min(next, deadline.Sub(now))
	}
	if due, ok := b.control.lease.Rests(); ok {
		next = min(next, due.Sub(now))
	}
	return min(next, b.letGo(now), b.checkGrants(now), b.checkHeld(now), b.awaitPromptIfDue(now))
}

// tickDisplay does what is due of the screen and the log.
func (t *Terminal) tickDisplay(now time.Time) time.Duration {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.mu.Lock()
	cols, rows, wait := t.takeSize(now)
	t.mu.Unlock()
	next := noDeadline
	if wait > 0 {
		next = wait
	}
	if cols > 0 {
		t.resized(cols, rows)
	}
	return min(next, t.takeKeyframes(now), t.beginAnewIfDue(now))
}
