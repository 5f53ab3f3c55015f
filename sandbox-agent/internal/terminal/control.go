package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
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

// A sizeLimiter spaces resizes. The terminal's mutex guards it.
type sizeLimiter struct {
	cols, rows int       // asked for and not yet applied; 0 when there is none
	last       time.Time // when a size was last applied
}

// Propose asks for a change of the lease. LEASED answers it, on this
// attachment with p's id and on all others with none. The caller has checked
// that the next holder's grant allows control here; a relay proposes only
// those who are connected to it.
func (a *Attachment) Propose(p protocol.LeaseProposal) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended.IsZero() {
		a.refuseProposal(p.ID, protocol.KindEnded.Text())
		return
	}
	next := p.Next.Holder
	if _, err := t.lease.Propose(p, max(t.sockets(next), 1), time.Now()); err != nil {
		a.refuseProposal(p.ID, protocol.AsError(err).Error())
		return
	}
	if next != "" && a.present[next] == 0 {
		a.setPresent(next, 1)
	}
	t.leaseChanged(a, p.ID)
}

// RefuseProposal answers the proposal id with the lease as it stands, for a
// caller that found the proposal wanting itself.
func (a *Attachment) RefuseProposal(id uint64, reason string) {
	a.terminal.mu.Lock()
	defer a.terminal.mu.Unlock()
	a.refuseProposal(id, reason)
}

func (a *Attachment) refuseProposal(id uint64, reason string) {
	a.post(protocol.Leased{ID: id, Lease: a.terminal.lease.Lease(time.Now()), Refused: reason})
}

// Revoke frees the lease if it is held under grant, which is no longer valid.
// It reports whether it was.
func (t *Terminal) Revoke(grant protocol.GrantID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	held := t.lease.Lease(now)
	if held.State == protocol.LeaseFree || held.GrantID != grant {
		return false
	}
	if _, err := t.lease.Propose(protocol.LeaseProposal{ExpectRevision: held.Revision}, 0, now); err != nil {
		t.log.Error("a lease can't be freed", "error", err)
		return false
	}
	t.leaseChanged(nil, 0)
	return true
}

// Holder notes how many sockets a user has at the relay of this attachment.
// When the lease's holder has none left anywhere, the grace begins; it ends
// when one is back.
func (a *Attachment) Holder(h protocol.Holder) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.err != nil {
		return
	}
	a.setPresent(h.User, h.Sockets)
	t.present(h.User)
}

func (a *Attachment) setPresent(user protocol.UserID, sockets int) {
	if sockets == 0 {
		delete(a.present, user)
		return
	}
	if _, known := a.present[user]; known || len(a.present) < maxPresent {
		a.present[user] = sockets
	}
}

// sockets counts a user's sockets at all relays.
func (t *Terminal) sockets(user protocol.UserID) (n int) {
	for a := range t.attachments {
		n += a.present[user]
	}
	return n
}

// present tells the lease how many sockets user has. It is called with mu held.
func (t *Terminal) present(user protocol.UserID) {
	if t.ended.IsZero() && t.lease.Sockets(user, t.sockets(user), time.Now()) {
		t.leaseChanged(nil, 0)
	}
}

// leaseChanged announces the lease and refuses what was typed under another.
// The proposer, if any, gets it as the answer to its proposal id. It is called
// with mu held.
func (t *Terminal) leaseChanged(proposer *Attachment, id uint64) {
	leased := protocol.Leased{Lease: t.lease.Lease(time.Now())}
	for a := range t.attachments {
		leased.ID = 0 // unasked
		if a == proposer {
			leased.ID = id
		}
		a.post(leased)
	}
	t.refuseStale()
	t.poke()
}

// Resize asks for another size under r's term; under any other nothing
// happens. The size becomes an event in the log once it is applied, which may
// take a moment when sizes follow each other closely.
func (a *Attachment) Resize(r protocol.Resize) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.mayType(r.Term); !ok || a.err != nil {
		return
	}
	t.size.cols = min(max(r.Cols, protocol.MinCols), protocol.MaxCols)
	t.size.rows = min(max(r.Rows, protocol.MinRows), protocol.MaxRows)
	if t.applySize(time.Now()) > 0 {
		t.poke()
	}
}

// applySize applies the size asked for, or returns how long that must wait. It
// is called with mu held.
func (t *Terminal) applySize(now time.Time) (wait time.Duration) {
	if t.size.cols == 0 {
		return 0
	}
	if wait := t.size.last.Add(resizeEvery).Sub(now); wait > 0 {
		return wait
	}
	cols, rows := t.size.cols, t.size.rows
	t.size = sizeLimiter{last: now}
	if err := t.dev.Resize(cols, rows); err != nil {
		t.log.Warn("resizing a terminal failed", "error", err)
		return 0
	}
	t.resized(cols, rows)
	return 0
}

// poke has keep look at its deadlines again.
func (t *Terminal) poke() {
	select {
	case t.life.changed <- struct{}{}:
	default: // it has yet to look
	}
}

// tick does what is due and returns how long until something is again.
func (t *Terminal) tick() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.lease.Expire(now) {
		t.leaseChanged(nil, 0)
	}
	next := noDeadline
	if wait := t.applySize(now); wait > 0 {
		next = wait
	}
	if deadline, ok := t.lease.Deadline(); ok {
		next = min(next, deadline.Sub(now))
	}
	next = min(next, t.takeKeyframes(now), t.letGo(now))
	return max(next, 0)
}
