package arbiter

import (
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
)

const (
	// ResizeEvery is the least time between two resizes; of those in between
	// the last one counts. Each redraws the whole screen of most programs.
	ResizeEvery = 50 * time.Millisecond
	// maxPresent bounds the users whose sockets a stream remembers.
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

// Propose asks for a change of the lease. LEASED answers it, on this stream with
// p's id and on all others with none. The next holder needs a grant of this
// stream that allows to control the terminal; freeing the lease needs none.
// Nothing changes while a coding agent runs or is being stopped. A relay proposes
// only those who are connected to it.
func (a *Stream) Propose(p protocol.LeaseProposal) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if a.err != nil {
		return
	}
	grant, err := a.mayHold(p.Next, now)
	switch {
	case !b.ended.IsZero():
		a.refuseProposal(p.ID, protocol.KindEnded.Text())
		return
	case b.stage.locked():
		a.refuseProposal(p.ID, string(protocol.RefusedAgentRunning))
		return
	case err != nil:
		a.refuseProposal(p.ID, err.Error())
		return
	case p.Next.Reason == protocol.ReasonOwner && !b.o.owns(grant):
		a.refuseProposal(p.ID, "the grant does not allow to take control back")
		return
	}
	next := p.Next.Holder
	if _, err := b.control.lease.Propose(p, max(b.streams.sockets(next), 1), now); err != nil {
		a.refuseProposal(p.ID, protocol.AsError(err).Error())
		return
	}
	if next != "" && a.present[next] == 0 {
		a.setPresent(next, 1)
	}
	b.control.heldUnder(grant)
	b.leaseChanged(a, p.ID)
}

// assign makes next the holder, or frees the lease, as the terminal itself
// decides. A holder who stays gets a new term all the same. leaseChanged must
// follow. The caller holds mu.
func (b *Arbiter) assign(next protocol.LeaseNext, grant *jws.Grant) {
	now := time.Now()
	steps := []protocol.LeaseNext{next}
	if held := b.control.lease.Lease(now); next.Holder != "" && held.Holder == next.Holder {
		steps = []protocol.LeaseNext{{}, next}
	}
	b.control.lease.Expire(now)
	for _, step := range steps {
		p := protocol.LeaseProposal{ExpectRevision: b.control.lease.Lease(now).Revision, Next: step}
		sockets := b.streams.sockets(step.Holder)
		if step.Holder == protocol.AgentHolder {
			sockets = 1
		}
		if _, err := b.control.lease.Propose(p, sockets, now); err != nil {
			panic("arbiter: a lease can't be assigned: " + err.Error()) // its revision is the present one
		}
	}
	b.control.heldUnder(grant)
}

// RefuseProposal answers the proposal id with the lease as it stands, for a
// caller that found the proposal wanting itself.
func (a *Stream) RefuseProposal(id uint64, reason string) {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	a.refuseProposal(id, reason)
}

// refuseProposal answers the proposal id with the lease as it stands. The
// caller holds Arbiter.mu.
func (a *Stream) refuseProposal(id uint64, reason string) {
	a.post(protocol.Leased{ID: id, Lease: a.arbiter.control.lease.Lease(time.Now()), Refused: reason})
}

// Holder notes how many sockets a user has at the relay of this stream.
// When the lease's holder has none left anywhere, the grace begins; it ends
// when one is back. A coding agent that holds it has no sockets to lose.
func (a *Stream) Holder(h protocol.Holder) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.err != nil || h.User == protocol.AgentHolder {
		return
	}
	a.setPresent(h.User, h.Sockets)
	b.present(h.User)
}

// setPresent notes how many sockets user has at this relay. The caller holds
// Arbiter.mu.
func (a *Stream) setPresent(user protocol.UserID, sockets int) {
	if sockets == 0 {
		delete(a.present, user)
		return
	}
	if _, known := a.present[user]; known || len(a.present) < maxPresent {
		a.present[user] = sockets
	}
}

// present tells the lease how many sockets user has. The caller holds mu.
func (b *Arbiter) present(user protocol.UserID) {
	if b.ended.IsZero() && b.control.lease.Sockets(user, b.streams.sockets(user), time.Now()) {
		b.leaseChanged(nil, 0)
	}
}

// leaseChanged announces the lease and refuses what was typed under another.
// The proposer, if any, gets it as the answer to its proposal id. The caller
// holds mu.
func (b *Arbiter) leaseChanged(proposer *Stream, id uint64) {
	leased := protocol.Leased{Lease: b.control.lease.Lease(time.Now())}
	if leased.Lease.Holder == "" {
		b.control.grant = nil
	}
	if b.o.Leased != nil {
		b.o.Leased(leased.Lease)
	}
	for a := range b.streams {
		leased.ID = 0 // unasked
		if a == proposer {
			leased.ID = id
		}
		a.post(leased)
	}
	b.refuseStale()
	b.Poke()
}

// AskSize notes that another size is asked for, within bounds, for
// [Arbiter.TakeSize]. It fails when the program has ended.
func (b *Arbiter) AskSize(cols, rows int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended.IsZero() {
		return errEnded
	}
	b.size.ask(cols, rows)
	return nil
}

// AskSize is [Arbiter.AskSize] for a viewer. It reports false, and nothing
// happens, under a term that isn't the present one, and while a coding agent runs
// or is being stopped.
func (a *Stream) AskSize(r protocol.Resize) bool {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.mayType(r.Term); !ok || a.err != nil {
		return false
	}
	b.size.ask(r.Cols, r.Rows)
	return true
}

func (s *sizeLimiter) ask(cols, rows int) {
	s.cols = min(max(cols, protocol.MinCols), protocol.MaxCols)
	s.rows = min(max(rows, protocol.MinRows), protocol.MaxRows)
}

// TakeSize gives the program in front the size asked for, and returns it for the
// screen and [Arbiter.Resized]. It is 0 when there is none, or it has to wait so
// long, which is until sizes follow each other less closely.
func (b *Arbiter) TakeSize(now time.Time) (cols, rows int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size.cols == 0 {
		return 0, 0, 0
	}
	if wait := b.size.last.Add(ResizeEvery).Sub(now); wait > 0 {
		return 0, 0, wait
	}
	cols, rows = b.size.cols, b.size.rows
	b.size = sizeLimiter{last: now}
	if !b.stage.front.resize(cols, rows, b.o.Log) {
		return 0, 0, 0
	}
	return cols, rows, 0
}

// resize gives the program's PTY a size, and reports whether that worked.
func (p *Program) resize(cols, rows int, log *slog.Logger) bool {
	if err := p.Device.Resize(cols, rows); err != nil {
		log.Warn("resizing a terminal failed", "error", err)
		return false
	}
	return true
}

// renewTerm gives the human who has control a new term, and who types for a tool
// none: keys that were typed at a coding agent must not reach the program behind
// it. The caller holds mu.
func (b *Arbiter) renewTerm() {
	g := b.control.grant
	held := b.control.lease.Lease(time.Now())
	switch {
	case held.Holder == "":
		return
	case b.control.isLent():
		b.assign(protocol.LeaseNext{}, nil)
	default:
		b.assign(protocol.LeaseNext{Holder: held.Holder, GrantID: held.GrantID}, g)
	}
	b.leaseChanged(nil, 0)
}

// isLent reports whether somebody has control only as long as they type for a
// tool. The caller holds mu.
func (c *control) isLent() bool {
	held := c.lease.Lease(time.Now())
	return held.Holder != "" && held.Term == c.lent
}
