// Package control says who may write in a conversation, and who may follow it:
// the lease, and the grants under which relays use streams for their viewers. It
// has no clock.
//
// The rules are those of terminals, with the capability chat in place of control:
// the holder needs a grant that is presented on the stream, the lease ends with
// that grant unless another one renews it, a revoked grant ends it at once, and a
// stream without a grant ends.
package control

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/sandbox-agent/internal/grantlist"
)

const (
	// Forever is how long to wait when nothing is due.
	Forever = 24 * time.Hour
	// checkEvery is the longest time between two looks at the clock of the wall,
	// by which grants end and which may jump.
	checkEvery = time.Second
	// maxPresent bounds the users whose sockets a seat remembers. Beyond it a user
	// counts as absent.
	maxPresent = 4096
)

// ErrNoGrant ends a stream through which nobody may follow any more.
var ErrNoGrant = errors.New("control: no valid grant remains")

// A Room is what one conversation's streams have in common. It is not safe for
// concurrent use.
type Room struct {
	session protocol.SessionID
	revoked *jws.RevocationSet // nil: nothing is
	lease   *lease.Register
	grant   *jws.Grant // under which the lease is held; nil: it is free, or a command's grant that no stream has presented
	seats   map[*Seat]struct{}
}

// A Seat is one stream.
type Seat struct {
	grants    grantlist.List
	present   map[protocol.UserID]int // sockets at its relay
	bareSince time.Time               // when the grants ran out; zero: they haven't
	muted     bool                    // the last grant was revoked
	over      bool
}

// Muted reports whether nothing may be shown on the stream until a grant comes.
func (s *Seat) Muted() bool { return s.muted }

// Over reports whether the stream has had no grant for too long.
func (s *Seat) Over() bool { return s.over }

// A Drop is a grant of a seat that was revoked.
type Drop struct {
	Seat   *Seat
	Handle uint64
	Grant  protocol.GrantID
}

// New returns the room of a conversation in session, whose lease is free.
func New(session protocol.SessionID, revoked *jws.RevocationSet) *Room {
	return &Room{session: session, revoked: revoked, lease: lease.New(), seats: map[*Seat]struct{}{}}
}

// Enter adds a stream.
func (r *Room) Enter() *Seat {
	s := &Seat{present: map[protocol.UserID]int{}}
	r.seats[s] = struct{}{}
	return s
}

// Leave takes a stream off. Its sockets count no more. It reports whether the
// lease changed.
func (r *Room) Leave(s *Seat, now time.Time) bool {
	if _, here := r.seats[s]; !here {
		return false
	}
	delete(r.seats, s)
	holder := r.lease.Lease(now).Holder
	return s.present[holder] > 0 && r.lease.Sockets(holder, r.sockets(holder), now)
}

// Empty reports whether there is no stream, and nobody holds the lease.
func (r *Room) Empty() bool {
	return len(r.seats) == 0 && r.lease.Lease(time.Time{}).State == protocol.LeaseFree
}

// Lease returns the lease.
func (r *Room) Lease(now time.Time) protocol.Lease { return r.lease.Lease(now) }

// AddGrant adds a verified grant to those of a seat. It fails with KindForbidden
// for one that doesn't allow to follow, with KindUnauthenticated for a revoked
// one, with KindExpired, and with KindTooMany.
func (r *Room) AddGrant(s *Seat, g *jws.Grant, handle uint64, now time.Time) error {
	switch {
	case s.over:
		return protocol.Errorf(protocol.KindUnavailable, "the stream is over")
	case !g.Allows(r.session, "", protocol.CapView), g.Subject == protocol.AgentHolder:
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session")
	case r.void(g):
		return protocol.Errorf(protocol.KindUnauthenticated, "the grant was revoked")
	case grantlist.Over(g, now):
		return protocol.Errorf(protocol.KindExpired, "the grant has expired")
	}
	if s.grants.Len() >= grantlist.Max {
		s.sweep(now)
	}
	if !s.grants.Add(g, handle, r.grant) {
		return protocol.Errorf(protocol.KindTooMany, "over %d grants", grantlist.Max)
	}
	s.bareSince, s.muted = time.Time{}, false
	if r.grant == nil && r.lease.Lease(now).Holder == g.Subject && r.chats(g, g.Subject, now) {
		r.grant = g // what was taken by a command ends with a grant from now on
	}
	return nil
}

// DropGrant takes back a grant. A lease that is held under it stays, for as long
// as the grant would have been valid.
func (r *Room) DropGrant(s *Seat, id protocol.GrantID, now time.Time) {
	s.grants.Drop(id)
	s.noteBare(now)
}

func (s *Seat) sweep(now time.Time) {
	s.grants.Expire(now)
	s.noteBare(now)
}

func (s *Seat) noteBare(now time.Time) {
	if s.grants.Bare() && s.bareSince.IsZero() {
		s.bareSince = now
	}
}

// Propose changes the lease as a relay asks. The next holder needs a grant of the
// seat; freeing the lease needs none. It reports whether the lease changed.
func (r *Room) Propose(s *Seat, p protocol.LeaseProposal, now time.Time) (changed bool, err error) {
	grant, err := r.mayHold(s, p.Next, now)
	switch {
	case err != nil:
		return false, err
	case p.Next.Reason == protocol.ReasonOwner && (grant == nil || !grant.Allows(r.session, "", protocol.CapAdmin)):
		return false, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to take control back")
	}
	before, next := r.lease.Lease(now), p.Next.Holder
	if _, err := r.lease.Propose(p, max(r.sockets(next), 1), now); err != nil {
		return false, err
	}
	if next != "" && s.present[next] == 0 {
		s.setPresent(next, 1)
	}
	r.grant = grant
	return before.Revision != r.lease.Lease(now).Revision, nil
}

// mayHold returns the grant of the seat under which next may hold the lease, nil
// for nobody.
func (r *Room) mayHold(s *Seat, next protocol.LeaseNext, now time.Time) (*jws.Grant, error) {
	if next.Holder == "" {
		return nil, nil
	}
	g := s.grants.Get(next.GrantID)
	if g == nil || !r.chats(g, next.Holder, now) {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to write in this conversation")
	}
	return g, nil
}

// chats reports whether g allows user to write.
func (r *Room) chats(g *jws.Grant, user protocol.UserID, now time.Time) bool {
	return g.Subject == user && !grantlist.Over(g, now) && !r.void(g) && g.Allows(r.session, "", protocol.CapChat)
}

// May reports whether user may write: the holder, and anybody while the lease is
// free.
func (r *Room) May(user protocol.UserID, now time.Time) bool {
	if deadline, grace := r.lease.Deadline(); grace && !now.Before(deadline) {
		return true
	}
	holder := r.lease.Lease(now).Holder
	return holder == "" || holder == user || user == ""
}

// Take makes the sender of a signed message the holder of a lease that is free,
// and notes that the holder writes. It reports whether the lease changed, and
// fails with KindForbidden when somebody else holds it.
func (r *Room) Take(user protocol.UserID, grant protocol.GrantID, now time.Time) (changed bool, err error) {
	changed = r.lease.Expire(now)
	held := r.lease.Lease(now)
	switch {
	case held.Holder == user && user != "":
		return r.lease.Typed(now) || changed, nil
	case held.Holder != "":
		return changed, protocol.Errorf(protocol.KindForbidden, "somebody else has control")
	case user == "":
		return changed, nil // the control plane itself
	}
	best := r.grantOf(user, now)
	if best != nil {
		grant = best.ID
	}
	p := protocol.LeaseProposal{
		ExpectRevision: held.Revision, Next: protocol.LeaseNext{Holder: user, GrantID: grant},
	}
	if _, err := r.lease.Propose(p, r.sockets(user), now); err != nil {
		return changed, err
	}
	r.grant = best
	return true, nil
}

// Typed notes that the holder is at work. It reports whether the lease changed.
func (r *Room) Typed(now time.Time) bool {
	return r.lease.Lease(now).Holder != "" && r.lease.Typed(now)
}

// MayAbort reports whether user may stop a run: who has control, who owns the
// session, and anybody while control is free.
func (r *Room) MayAbort(user protocol.UserID, now time.Time) bool {
	held := r.lease.Lease(now)
	if held.Holder == "" || held.Holder == user || user == "" {
		return true
	}
	for s := range r.seats {
		for _, g := range s.grants.All() {
			if r.chats(g.Grant, user, now) && g.Allows(r.session, "", protocol.CapAdmin) {
				return true
			}
		}
	}
	return false
}

// Holder notes how many sockets a user has at the relay of a seat. It reports
// whether the lease changed.
func (r *Room) Holder(s *Seat, h protocol.Holder, now time.Time) bool {
	if s.over || h.User == protocol.AgentHolder {
		return false
	}
	s.setPresent(h.User, h.Sockets)
	return r.lease.Sockets(h.User, r.sockets(h.User), now)
}

func (s *Seat) setPresent(user protocol.UserID, sockets int) {
	if sockets == 0 {
		delete(s.present, user)
		return
	}
	if _, known := s.present[user]; known || len(s.present) < maxPresent {
		s.present[user] = sockets
	}
}

// sockets counts a user's sockets at all relays.
func (r *Room) sockets(user protocol.UserID) (n int) {
	for s := range r.seats {
		n += s.present[user]
	}
	return n
}

// grantOf returns a grant at any relay under which user may write, the one that
// is good for longest; nil when there is none.
func (r *Room) grantOf(user protocol.UserID, now time.Time) (best *jws.Grant) {
	for s := range r.seats {
		for _, g := range s.grants.All() {
			if r.chats(g.Grant, user, now) && (best == nil || g.ExpiresAt > best.ExpiresAt) {
				best = g.Grant
			}
		}
	}
	return best
}

// Tick ends what is over at now. It reports whether the lease changed, and how
// long until it has to be called again.
func (r *Room) Tick(now time.Time) (changed bool, next time.Duration) {
	changed = r.lease.Expire(now)
	changed = r.lease.Rest(now) || changed
	next = Forever
	for s := range r.seats {
		s.sweep(now)
		switch {
		case s.bareSince.IsZero():
			if s.grants.Len() > 0 {
				next = min(next, checkEvery)
			}
		case now.Sub(s.bareSince) >= grantlist.BareFor:
			s.over = true
		default:
			next = min(next, s.bareSince.Add(grantlist.BareFor).Sub(now))
		}
	}
	if r.grant != nil {
		changed = r.renew(now) || changed
		next = min(next, checkEvery)
	}
	if due, ok := r.lease.Deadline(); ok {
		next = min(next, due.Sub(now))
	}
	if due, ok := r.lease.Rests(); ok {
		next = min(next, due.Sub(now))
	}
	return changed, next
}

// renew frees a lease whose grant has expired, unless the holder has another
// grant: then the lease goes on under that one.
func (r *Room) renew(now time.Time) bool {
	held := r.lease.Lease(now)
	if held.Holder == "" {
		r.grant = nil
		return false
	}
	if !grantlist.Over(r.grant, now) {
		return false
	}
	p := protocol.LeaseProposal{ExpectRevision: held.Revision}
	renewed := r.grantOf(r.grant.Subject, now)
	if renewed != nil {
		p.Next = protocol.LeaseNext{Holder: renewed.Subject, GrantID: renewed.ID}
	}
	if _, err := r.lease.Propose(p, r.sockets(r.grant.Subject), now); err != nil {
		return false // the grace is over, and the lease with it
	}
	r.grant = renewed
	return true
}

// DropRevoked drops the grants that are void, mutes the seats that have no other,
// and frees the lease if it is held under one, without grace.
func (r *Room) DropRevoked(now time.Time) (dropped []Drop, changed bool) {
	for s := range r.seats {
		was := len(dropped)
		for id, g := range s.grants.All() {
			if r.void(g.Grant) {
				s.grants.Drop(id)
				dropped = append(dropped, Drop{s, g.Handle, id})
			}
		}
		if len(dropped) > was && s.grants.Bare() {
			s.muted = true
			s.noteBare(now)
		}
	}
	if r.grant == nil || !r.void(r.grant) {
		return dropped, false
	}
	r.grant = nil
	changed = r.lease.Expire(now)
	p := protocol.LeaseProposal{ExpectRevision: r.lease.Lease(now).Revision}
	if _, err := r.lease.Propose(p, 0, now); err != nil {
		return dropped, changed
	}
	return dropped, true
}

func (r *Room) void(g *jws.Grant) bool { return r.revoked != nil && r.revoked.Grant(g) }
