package arbiter

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/grantlist"
)

const (
	// MaxGrants bounds the grants of a stream; those of one person
	// protocol.MaxPersonGrants does.
	MaxGrants = grantlist.Max
	// BareFor is how long a stream may be without a grant, while its relay
	// presents another one.
	BareFor = grantlist.BareFor
	// checkEvery is the longest time between two looks at the clock of the wall,
	// by which grants end and which may jump.
	checkEvery = time.Second
)

// ErrNoGrant ends a stream whose terminal nobody may view through it any
// more.
var ErrNoGrant = errors.New("arbiter: no valid view grant remains")

// AddGrant adds a grant, which the caller has verified and the relay calls by a
// handle, to those under which the stream is used. It fails with
// KindForbidden for one that does not allow to view this terminal, with
// KindUnauthenticated for a revoked one, with KindExpired, and with KindTooMany
// when 4096 people have one. From the first grant on the stream ends with
// [ErrNoGrant] soon after the last has ended. When that was revoked, nothing of
// the terminal is returned in between.
func (a *Stream) AddGrant(g *jws.Grant, handle uint64) error {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case a.err != nil:
		return protocol.Errorf(protocol.KindUnavailable, "the stream is over")
	case !g.Allows(b.o.Session, b.o.Info.ID, protocol.CapView), g.Subject == protocol.AgentHolder:
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	case b.o.void(g): // asked here, so that no revocation comes in between
		return protocol.Errorf(protocol.KindUnauthenticated, "the grant was revoked")
	case grantlist.Over(g, now):
		return protocol.Errorf(protocol.KindExpired, "the grant has expired")
	}
	if a.grants.Len() >= MaxGrants {
		a.sweepGrants(now)
	}
	if !a.grants.Add(g, handle, b.control.grant) {
		return protocol.Errorf(protocol.KindTooMany, "over %d grants", MaxGrants)
	}
	a.bareSince = time.Time{}
	if a.muted {
		a.muted = false
		a.notify()
	}
	b.control.grantsDue(grantlist.End(g))
	b.Poke()
	return nil
}

// DropGrant takes back a grant. A lease that is held under it stays, for as
// long as the grant would have been valid.
func (a *Stream) DropGrant(id protocol.GrantID) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	a.grants.Drop(id)
	a.noteBare(time.Now())
}

// noteBare notes that a has run out of grants. The caller holds Arbiter.mu.
func (a *Stream) noteBare(now time.Time) {
	if a.grants.Bare() && a.bareSince.IsZero() {
		a.bareSince = now
		a.arbiter.control.grantsDue(now.Add(BareFor))
		a.arbiter.Poke()
	}
}

// sweepGrants drops expired grants and says when the next has to be looked at.
// The caller holds Arbiter.mu.
func (a *Stream) sweepGrants(now time.Time) {
	a.grants.Expire(now)
	for _, g := range a.grants.All() {
		a.arbiter.control.grantsDue(grantlist.End(g.Grant))
	}
	a.noteBare(now)
}

// mayHold returns the grant of this stream under which next may hold the
// lease, nil for nobody. The caller holds Arbiter.mu.
func (a *Stream) mayHold(next protocol.LeaseNext, now time.Time) (*jws.Grant, error) {
	if next.Holder == "" {
		return nil, nil
	}
	g := a.grants.Get(next.GrantID)
	if g == nil || !a.arbiter.o.controls(g, next.Holder, now) {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to control this terminal")
	}
	return g, nil
}

// controls reports whether g allows user to control the terminal.
func (o *Options) controls(g *jws.Grant, user protocol.UserID, now time.Time) bool {
	return g.Subject == user && !grantlist.Over(g, now) && g.Allows(o.Session, o.Info.ID, protocol.CapControl)
}

// owns reports whether g's user owns the session, and may take control back from
// whoever has it.
func (o *Options) owns(g *jws.Grant) bool {
	return g != nil && g.Allows(o.Session, "", protocol.CapAdmin)
}

func (o *Options) void(g *jws.Grant) bool {
	return o.Revoked != nil && o.Revoked.Grant(g)
}

// heldUnder notes the grant under which the lease is held. The caller holds mu.
func (c *control) heldUnder(g *jws.Grant) {
	if c.grant = g; g != nil {
		c.grantsDue(grantlist.End(g))
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
//
// Package lifetime ends each use of a grant by itself, one after the other. Here
// all that depends on grants, streams and the lease, must change at one moment
// under mu, so this has its own list and deadline.
func (b *Arbiter) checkGrants(now time.Time) time.Duration {
	due := &b.control.due
	if due.IsZero() {
		return NoDeadline
	}
	if wait := due.Sub(now); wait > 0 {
		return min(wait, checkEvery)
	}
	*due = time.Time{}
	for a := range b.streams {
		a.sweepGrants(now)
		if since := a.bareSince; !since.IsZero() && now.Sub(since) >= BareFor {
			a.fail(ErrNoGrant)
		} else if !since.IsZero() {
			b.control.grantsDue(since.Add(BareFor))
		}
	}
	b.checkHolder(now)
	if due.IsZero() {
		return NoDeadline
	}
	return min(due.Sub(now), checkEvery)
}

// checkHolder frees a lease whose grant has expired, unless the holder has
// renewed it: then the lease goes on under the new one. The caller holds mu.
func (b *Arbiter) checkHolder(now time.Time) {
	g := b.control.grant
	if g == nil || !b.ended.IsZero() {
		return
	}
	if !grantlist.Over(g, now) {
		b.control.grantsDue(grantlist.End(g))
		return
	}
	held := b.control.lease.Lease(now)
	p := protocol.LeaseProposal{ExpectRevision: held.Revision}
	renewed := b.streams.grantOf(&b.o, g.Subject, now)
	if renewed != nil {
		p.Next = protocol.LeaseNext{Holder: g.Subject, GrantID: renewed.ID}
	}
	// It fails when the grace is over, and with that the lease.
	if _, err := b.control.lease.Propose(p, b.streams.sockets(g.Subject), now); err == nil {
		b.control.heldUnder(renewed)
		b.leaseChanged(nil, 0)
	}
}

// DropRevoked drops the grants that are void, has nothing more shown by the
// streams that have no other, and frees the lease if it is held under one,
// without grace. Whoever held it so before a coding agent doesn't get it back. All of that happens at one
// moment: until then the grants count, for whatever else is done.
func (b *Arbiter) DropRevoked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.streams {
		a.dropRevoked()
	}
	if a := b.stage.agent; a != nil && a.before != nil && b.o.void(a.before) {
		a.before = nil
	}
	if g := b.control.grant; g != nil && b.ended.IsZero() && b.o.void(g) {
		b.assign(protocol.LeaseNext{}, nil)
		b.leaseChanged(nil, 0)
	}
}

// dropRevoked drops the grants that are void and tells the relay of each. One
// that has another for those viewers may present it: nothing is returned
// before, and soon all is over. The caller holds Arbiter.mu.
func (a *Stream) dropRevoked() {
	b := a.arbiter
	dropped := false
	for id, g := range a.grants.All() {
		if !b.o.void(g.Grant) {
			continue
		}
		a.grants.Drop(id)
		a.post(protocol.Granted{Handle: g.Handle, GrantID: id, Refused: "the grant was revoked"})
		dropped = true
	}
	switch {
	case !dropped || !a.grants.Bare():
	case !b.ended.IsZero(): // nobody looks at the clock for it
		a.fail(ErrNoGrant)
	default:
		a.muted = true
		a.noteBare(time.Now())
	}
}
