package chathub

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// Who has joined a hub, and who is admitted. Owned by its run.

// setOf returns g's set at this conversation: whoever may talk to the coding agent
// may have control, and the session's owner takes it back.
func (k Key) setOf(g *jws.Grant) roster.Key {
	var r roster.Rights
	if g.Allows(k.Session, "", protocol.CapChat) {
		r |= roster.Control
	}
	if g.Allows(k.Session, "", protocol.CapAdmin) {
		r |= roster.Own
	}
	return roster.Key{User: g.Subject, Rights: r}
}

// asked returns g in the roster's form.
func asked(g *jws.Grant, token string) roster.Grant {
	return roster.Grant{ID: g.ID, Ends: g.ExpiresAt, Token: token}
}

// has reports whether f has joined and not left.
func (h *hub) has(f *follower) bool { return h.members[f.id] == f }

// join adds f. It follows nothing until its grant, or one of the same set, is
// accepted.
func (h *hub) join(f *follower) {
	if h.end.dead() || h.over {
		f.settle(h.whyOver())
		return
	}
	h.members[f.id] = f
	f.set = h.key.setOf(f.grant)
	f.rights = f.set.Rights
	admitted, effects := h.roster.Join(f.set, asked(f.grant, f.token), time.Now())
	if f.waits = !admitted; admitted {
		h.admit(f)
	}
	h.carry(effects)
}

// whyOver returns why nobody can join.
func (h *hub) whyOver() error {
	if h.end.err != nil && !agentstream.AboutGrant(h.end.err) {
		return h.end.err
	}
	return errAgain
}

// admit admits f after its grant, or one of the same set, was accepted.
func (h *hub) admit(f *follower) {
	f.waits = false
	if f.admitted { // it waited because of a newer grant
		could := f.may(roster.Control)
		f.rights = f.set.Rights
		h.changed(f, could)
		return
	}
	f.admitted = true
	h.present.Add(f.socket.user, f.socket.name, f.may(roster.Control))
	h.step(turn.Joined{
		Socket: f.id, User: f.socket.user, Name: f.socket.name, GrantID: h.frontOf(f),
		CanControl: f.may(roster.Control), Owns: f.may(roster.Own),
	})
	if h.caughtUp {
		f.settle(nil)
	}
}

// frontOf returns the grant that represents f's set: the accepted one, otherwise
// its own, which is being asked about.
func (h *hub) frontOf(f *follower) protocol.GrantID {
	return cmp.Or(h.roster.Front(f.set), f.grant.ID)
}

// changed handles the new rights of f, which could have control or not.
func (h *hub) changed(f *follower, could bool) {
	h.present.Change(f.socket.user, f.socket.name, could, f.may(roster.Control))
	h.step(turn.Renewed{Socket: f.id, GrantID: h.frontOf(f), CanControl: f.may(roster.Control), Owns: f.may(roster.Own)})
}

// leave removes f.
func (h *hub) leave(f *follower) {
	if !h.has(f) {
		return
	}
	delete(h.members, f.id)
	if f.admitted {
		h.present.Remove(f.socket.user, f.may(roster.Control))
		h.step(turn.Left{Socket: f.id})
	}
	h.carry(h.roster.Leave(f.set, f.grant.ID, h.set.grants.Check(f.grant) != nil, time.Now()))
}

// renew moves f to another grant of the same user. Lost rights count at once; new
// ones once the grant is accepted.
func (h *hub) renew(f *follower, grant *jws.Grant, token string) {
	if !h.has(f) {
		return
	}
	old, set, could, now := f.grant, f.set, f.may(roster.Control), time.Now()
	f.grant, f.token, f.set = grant, token, h.key.setOf(grant)
	admitted, effects := h.roster.Join(f.set, asked(grant, token), now)
	if f.rights &= f.set.Rights; admitted || !f.admitted {
		f.rights = f.set.Rights
	}
	f.waits = !admitted
	h.carry(effects)
	switch {
	case f.admitted:
		h.changed(f, could)
	case admitted:
		h.admit(f)
	}
	h.carry(h.roster.Leave(set, old.ID, false, now))
}

// expel removes f, which may not follow, and says why.
func (h *hub) expel(f *follower, err error) {
	if !h.has(f) {
		return
	}
	settled := f.settled
	h.leave(f)
	if f.settle(err); settled {
		f.failed(err, 0)
	}
}

// carry executes the roster's effects.
func (h *hub) carry(effects []roster.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case roster.Ask:
			if h.link != nil {
				h.link.out.Ask(e.Handle, e.Token)
			}
		case roster.Forget:
			if h.link != nil {
				h.link.out.Forget(e.ID)
			}
		case roster.Admit:
			for _, f := range h.ordered() {
				if f.set == e.Key && f.waits {
					h.admit(f)
				}
			}
		case roster.Refuse:
			h.turnAway(protocol.Errorf(protocol.KindForbidden, "the sandbox does not accept this grant"),
				func(f *follower) bool { return f.set == e.Key && f.grant.ID == e.ID })
		case roster.GiveUp: // the client comes back and asks again
			for _, f := range h.ordered() {
				if f.set == e.Key {
					f.socket.cut(cutUnanswered, protocol.Errorf(protocol.KindUnavailable, "the sandbox does not answer"))
					h.expel(f, protocol.Fault(protocol.KindUnavailable, nil))
				}
			}
		case roster.Succeed:
			h.step(turn.Succeeded{From: e.From, To: e.To})
		}
	}
	if key, g := h.roster.Bearer(); g.ID != "" && g.ID != h.dial.bearer.Load().grant.ID {
		h.dial.bearer.Store(&bearer{key, g})
	}
}

// ordered returns those who have joined, in order.
func (h *hub) ordered() []*follower {
	return slices.SortedFunc(maps.Values(h.members), func(a, b *follower) int { return cmp.Compare(a.id, b.id) })
}

// turnAway expels those for whom pick is true.
func (h *hub) turnAway(err error, pick func(*follower) bool) {
	for _, f := range h.ordered() {
		if pick(f) {
			f.refused = f.refused || !f.settled
			h.metrics.Refused.Inc()
			h.expel(f, err)
		}
	}
}

// replaceBearer handles the agent's refusal of the bearer's grant, and reports
// whether there is another bearer.
func (h *hub) replaceBearer(b *bearer, err error) (another bool) {
	h.turnAway(err, func(f *follower) bool { return f.grant.ID == b.grant.ID })
	another, effects := h.roster.RefuseBearer(b.key, b.grant.ID, time.Now())
	h.carry(effects)
	return another
}
