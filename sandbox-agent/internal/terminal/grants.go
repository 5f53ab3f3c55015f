package terminal

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// bareFor is how long an attachment may be without a grant, while its relay
	// presents another one.
	bareFor = time.Second
	// checkEvery is the longest time between two looks at the clock of the wall,
	// by which grants end and which may jump.
	checkEvery = time.Second
)

// ErrNoGrant ends an attachment whose terminal nobody may view through it any
// more.
var ErrNoGrant = errors.New("terminal: no valid view grant remains")

// AddGrant adds a grant, which the caller has verified and the relay calls by a
// handle, to those under which the attachment is used. It fails with
// KindForbidden for one that does not allow to view this terminal, with
// KindUnauthenticated for a revoked one, with KindExpired, and with KindTooMany
// when 4096 people have one. From the first grant on the attachment ends with
// [ErrNoGrant] soon after the last has ended. When that was revoked, nothing of
// the terminal is returned in between.
func (a *Attachment) AddGrant(g *jws.Grant, handle uint64) error {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	switch {
	case a.err != nil:
		return protocol.Errorf(protocol.KindUnavailable, "the stream is over")
	case !g.Allows(t.session, t.info.ID, protocol.CapView), g.Subject == protocol.AgentHolder:
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	case t.void(g): // asked here, so that no revocation comes in between
		return protocol.Errorf(protocol.KindUnauthenticated, "the grant was revoked")
	case over(g, now):
		return protocol.Errorf(protocol.KindExpired, "the grant has expired")
	}
	if len(a.grants.of) >= maxGrants {
		a.sweepGrants(now)
	}
	if !a.grants.add(g, handle, t.control.grant) {
		return protocol.Errorf(protocol.KindTooMany, "over %d grants", maxGrants)
	}
	a.bareSince = time.Time{}
	if a.muted {
		a.muted = false
		a.notify()
	}
	t.control.grantsDue(end(g))
	t.poke()
	return nil
}

// DropGrant takes back a grant. A lease that is held under it stays, for as
// long as the grant would have been valid.
func (a *Attachment) DropGrant(id protocol.GrantID) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	a.grants.drop(id)
	a.noteBare(time.Now())
}

// noteBare notes that a has run out of grants. The caller holds arbiter.mu.
func (a *Attachment) noteBare(now time.Time) {
	if a.grants.bare() && a.bareSince.IsZero() {
		a.bareSince = now
		a.terminal.control.grantsDue(now.Add(bareFor))
		a.terminal.poke()
	}
}

// sweepGrants drops expired grants and says when the next has to be looked at.
// The caller holds arbiter.mu.
func (a *Attachment) sweepGrants(now time.Time) {
	a.grants.expire(now)
	for _, g := range a.grants.of {
		a.terminal.control.grantsDue(end(g.Grant))
	}
	a.noteBare(now)
}

// mayHold returns the grant of this attachment under which next may hold the
// lease, nil for nobody. The caller holds arbiter.mu.
func (a *Attachment) mayHold(next protocol.LeaseNext, now time.Time) (*jws.Grant, error) {
	if next.Holder == "" {
		return nil, nil
	}
	g := a.grants.of[next.GrantID].Grant
	if g == nil || !a.terminal.controls(g, next.Holder, now) {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to control this terminal")
	}
	return g, nil
}

// controls reports whether g allows user to control the terminal.
func (b *arbiter) controls(g *jws.Grant, user protocol.UserID, now time.Time) bool {
	return g.Subject == user && !over(g, now) && g.Allows(b.session, b.info.ID, protocol.CapControl)
}

// owns reports whether g's user owns the session, and may take control back from
// whoever has it.
func (b *arbiter) owns(g *jws.Grant) bool {
	return g != nil && g.Allows(b.session, "", protocol.CapAdmin)
}

// end returns the last moment of g's life. It allows for the skew that its
// verification allowed for: a grant that was just taken must not be dropped at
// once.
func end(g *jws.Grant) time.Time { return g.Expires().Add(jws.Skew) }

func over(g *jws.Grant, now time.Time) bool { return now.After(end(g)) }

func (b *arbiter) void(g *jws.Grant) bool {
	return b.site.revoked != nil && b.site.revoked.Grant(g)
}

// heldUnder notes the grant under which the lease is held. The caller holds mu.
func (c *control) heldUnder(g *jws.Grant) {
	if c.grant = g; g != nil {
		c.grantsDue(end(g))
	}
}

// grantsDue has the grants looked at after when. The caller holds mu.
func (c *control) grantsDue(when time.Time) {
	when = when.Add(time.Nanosecond) // at the very end a grant is still good
	if due := &c.due; due.IsZero() || when.Before(*due) {
		*due = when
	}
}

// checkGrants ends what is used without a valid grant and returns how long until
// that has to be looked at again. The caller holds mu.
func (b *arbiter) checkGrants(now time.Time) time.Duration {
	due := &b.control.due
	if due.IsZero() {
		return noDeadline
	}
	if wait := due.Sub(now); wait > 0 {
		return min(wait, checkEvery)
	}
	*due = time.Time{}
	for a := range b.attachments {
		a.sweepGrants(now)
		if since := a.bareSince; !since.IsZero() && now.Sub(since) >= bareFor {
			a.fail(ErrNoGrant)
		} else if !since.IsZero() {
			b.control.grantsDue(since.Add(bareFor))
		}
	}
	b.checkHolder(now)
	if due.IsZero() {
		return noDeadline
	}
	return min(due.Sub(now), checkEvery)
}

// checkHolder frees a lease whose grant has expired, unless the holder has
// renewed it: then the lease goes on under the new one. The caller holds mu.
func (b *arbiter) checkHolder(now time.Time) {
	g := b.control.grant
	if g == nil || !b.ended.IsZero() {
		return
	}
	if !over(g, now) {
		b.control.grantsDue(end(g))
		return
	}
	held := b.control.lease.Lease(now)
	p := protocol.LeaseProposal{ExpectRevision: held.Revision}
	renewed := b.anotherGrant(g.Subject, now)
	if renewed != nil {
		p.Next = protocol.LeaseNext{Holder: g.Subject, GrantID: renewed.ID}
	}
	// It fails when the grace is over, and with that the lease.
	if _, err := b.control.lease.Propose(p, b.sockets(g.Subject), now); err == nil {
		b.control.heldUnder(renewed)
		b.leaseChanged(nil, 0)
	}
}

// anotherGrant returns a grant at any relay that lets user control the
// terminal, the one that is good for longest; nil when there is none. The
// caller holds mu.
func (b *arbiter) anotherGrant(user protocol.UserID, now time.Time) (best *jws.Grant) {
	for a := range b.attachments {
		for _, g := range a.grants.of {
			if b.controls(g.Grant, user, now) && (best == nil || g.ExpiresAt > best.ExpiresAt) {
				best = g.Grant
			}
		}
	}
	return best
}

// RevokeGrants makes grants void, presented or not: viewers who have no other
// are cut off, and a lease that is held under one of them is free. All of that
// is done when it returns.
func (h *Host) RevokeGrants(ids ...protocol.GrantID) {
	h.config.Revoked.Add(ids...) // which calls dropRevoked
}

// dropRevoked applies what is void to all terminals.
func (h *Host) dropRevoked() {
	h.mu.Lock()
	terminals := make([]*Terminal, 0, len(h.listed))
	for _, t := range h.listed {
		terminals = append(terminals, t)
	}
	h.mu.Unlock()
	for _, t := range terminals {
		t.dropRevoked()
	}
}

// dropRevoked drops the grants that are void, has nothing more shown by the
// attachments that have no other, and frees the lease if it is held under one, without grace. Whoever held
// it so before a coding agent doesn't get it back. All of that happens at one
// moment: until then the grants count, for whatever else is done.
func (b *arbiter) dropRevoked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.attachments {
		a.dropRevoked()
	}
	if a := b.stage.agent; a != nil && a.before != nil && b.void(a.before) {
		a.before = nil
	}
	if g := b.control.grant; g != nil && b.ended.IsZero() && b.void(g) {
		b.assign(protocol.LeaseNext{}, nil)
		b.leaseChanged(nil, 0)
	}
}

// dropRevoked drops the grants that are void and tells the relay of each. One
// that has another for those viewers may present it: nothing is returned
// before, and soon all is over. The caller holds arbiter.mu.
func (a *Attachment) dropRevoked() {
	t := a.terminal
	dropped := false
	for id, g := range a.grants.of {
		if !t.void(g.Grant) {
			continue
		}
		a.grants.drop(id)
		a.post(protocol.Granted{Handle: g.handle, GrantID: id, Refused: "the grant was revoked"})
		dropped = true
	}
	switch {
	case !dropped || !a.grants.bare():
	case !t.ended.IsZero(): // nobody looks at the clock for it
		a.fail(ErrNoGrant)
	default:
		a.muted = true
		a.noteBare(time.Now())
	}
}
