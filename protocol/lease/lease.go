// Package lease decides who may type into a terminal: the register of a
// terminal's lease, and the window that prevents writing input twice. It has no
// clock; callers pass the time.
package lease

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A Register is the lease of one terminal. Every change raises its revision,
// and every new holder its term, so that input typed under one term can't pass
// under another. It is not safe for concurrent use.
type Register struct {
	lease    protocol.Lease // without MSLeft
	deadline time.Time      // of the grace
	typed    time.Time      // when the holder last typed, or became the holder
	claimed  bool
}

// New returns a register whose lease is free and was never held.
func New() *Register {
	return &Register{lease: protocol.Lease{State: protocol.LeaseFree}}
}

// Lease returns the current lease. MSLeft is rounded up: it is 0 only if the
// grace is over and [Register.Expire] is due.
func (r *Register) Lease(now time.Time) protocol.Lease {
	l := r.lease
	if l.State == protocol.LeaseGrace {
		left := r.deadline.Sub(now) + time.Millisecond - 1
		l.MSLeft = max(left.Milliseconds(), 0)
	}
	return l
}

// Propose makes p.Next the holder, or frees the lease, if its revision is still
// the one that p expects. holderSockets counts the next holder's sockets;
// without any the grace begins at once. Proposing the present holder changes
// the grant, not the term, and a running grace continues unless there are
// sockets. It returns the current lease, and an error of kind conflict if
// nothing changed: because of the revision, because the grace is over and
// Expire is due, or because p calls a holder idle who isn't.
func (r *Register) Propose(p protocol.LeaseProposal, holderSockets int, now time.Time) (protocol.Lease, error) {
	if p.ExpectRevision != r.lease.Revision || r.over(now) {
		return r.Lease(now), protocol.Errorf(protocol.KindConflict, "the lease has changed")
	}
	next := p.Next
	if next.Reason == protocol.ReasonIdle && !r.lease.Idle {
		return r.Lease(now), protocol.Errorf(protocol.KindConflict, "the holder is not idle")
	}
	switch {
	case next.Holder == "":
		if r.lease.Holder != "" {
			r.free()
		}
	case next.Holder == r.lease.Holder:
		if r.lease.GrantID != next.GrantID {
			r.lease.GrantID = next.GrantID
			r.lease.Revision++
		}
		r.Sockets(next.Holder, holderSockets, now)
	default:
		r.claimed = r.claimed || next.Holder != protocol.AgentHolder
		r.lease = protocol.Lease{
			Revision: r.lease.Revision + 1, Term: r.lease.Term + 1,
			Holder: next.Holder, GrantID: next.GrantID, State: protocol.LeaseHeld, Reason: next.Reason,
		}
		r.typed = now
		r.Sockets(next.Holder, holderSockets, now)
	}
	return r.Lease(now), nil
}

// Sockets sets how many sockets user has at all relays together. If the holder
// has none left, the grace begins, anew each time; it ends if there are some
// before its deadline. After the deadline the lease becomes free instead. It
// returns whether the lease changed.
func (r *Register) Sockets(user protocol.UserID, n int, now time.Time) bool {
	if user == "" || user != r.lease.Holder {
		return false
	}
	if r.Expire(now) {
		return true
	}
	switch {
	case n <= 0 && r.lease.State == protocol.LeaseHeld:
		r.lease.State, r.deadline = protocol.LeaseGrace, now.Add(protocol.ControlGrace)
	case n > 0 && r.lease.State == protocol.LeaseGrace:
		r.lease.State = protocol.LeaseHeld
	default:
		return false
	}
	r.lease.Revision++
	return true
}

// Expire frees the lease if its grace is over. It returns whether it was.
func (r *Register) Expire(now time.Time) bool {
	if !r.over(now) {
		return false
	}
	r.free()
	return true
}

// Typed notes that the holder has typed. It returns whether the lease changed.
func (r *Register) Typed(now time.Time) bool {
	r.typed = now
	if !r.lease.Idle {
		return false
	}
	r.lease.Idle = false
	r.lease.Revision++
	return true
}

// Rest marks the holder as idle if it has typed nothing for so long. It returns
// whether the lease changed.
func (r *Register) Rest(now time.Time) bool {
	if due, waits := r.Rests(); !waits || now.Before(due) {
		return false
	}
	r.lease.Idle = true
	r.lease.Revision++
	return true
}

// Rests returns when Rest is due, unless the holder types.
func (r *Register) Rests() (due time.Time, ok bool) {
	l := r.lease
	return r.typed.Add(protocol.ControlIdle), l.State == protocol.LeaseHeld && l.Holder != protocol.AgentHolder && !l.Idle
}

// Deadline returns when Expire frees the lease, unless the holder returns.
func (r *Register) Deadline() (time.Time, bool) {
	if r.lease.State != protocol.LeaseGrace {
		return time.Time{}, false
	}
	return r.deadline, true
}

// Claimed reports whether a person has ever held the lease. A coding agent
// doesn't count, so that its terminal's creator may still claim it.
func (r *Register) Claimed() bool { return r.claimed }

// Check reports whether input typed under term may be written, and if not, why.
func (r *Register) Check(term uint64) (protocol.RefusalReason, bool) {
	switch {
	case r.lease.State == protocol.LeaseFree:
		return protocol.RefusedNotController, false
	case term != r.lease.Term:
		return protocol.RefusedStaleTerm, false
	}
	return "", true
}

func (r *Register) over(now time.Time) bool {
	return r.lease.State == protocol.LeaseGrace && !now.Before(r.deadline)
}

func (r *Register) free() {
	r.lease = protocol.Lease{Revision: r.lease.Revision + 1, Term: r.lease.Term, State: protocol.LeaseFree}
}
