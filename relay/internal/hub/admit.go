package hub

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// grantWait is how long somebody waits for an answer to a grant. A test has more
// patience.
var grantWait = protocol.GrantWait

// maxEarly bounds what a viewer says before it is admitted.
const maxEarly = 64

// An Admitter says who may see a terminal. It never waits: it answers each
// question later, by its handle, to the roster. The agent is one, through the
// hub's stream to it.
type Admitter interface {
	// Ask asks about a grant, and about no other by this handle.
	Ask(h roster.Handle, token string)
	// Forget says that a grant isn't needed any more.
	Forget(id protocol.GrantID)
}

// pending are the viewers who wait until somebody has said that their grants are
// good, by the sets of their grants. Who waits because of another grant is among
// those who may see all the same. Owned by run.
type pending map[roster.Key]map[*Viewer]struct{}

func (p pending) has(v *Viewer) bool {
	_, waits := p[v.set][v]
	return waits
}

func (p pending) add(v *Viewer) {
	if p[v.set] == nil {
		p[v.set] = map[*Viewer]struct{}{}
	}
	p[v.set][v] = struct{}{}
}

func (p pending) drop(v *Viewer) {
	if delete(p[v.set], v); len(p[v.set]) == 0 {
		delete(p, v.set)
	}
}

// of returns who waits of a set, in the order in which they came.
func (p pending) of(set roster.Key) []*Viewer {
	return slices.SortedFunc(maps.Keys(p[set]), func(a, b *Viewer) int { return cmp.Compare(a.id, b.id) })
}

// setOf returns the set of g's kind at this terminal.
func (k Key) setOf(g *jws.Grant) roster.Key {
	return roster.Key{User: g.Subject, Rights: roster.RightsOf(g, k.Session, k.PTY)}
}

// asked returns g as the roster knows it.
func asked(g *jws.Grant, token string) roster.Grant {
	return roster.Grant{ID: g.ID, Ends: g.ExpiresAt, Token: token}
}

// may reports whether v has a right.
func (v *Viewer) may(right roster.Rights) bool { return v.rights&right != 0 }

// everybody yields those who may see and those who may not yet. The loop may
// have them leave.
func (h *Hub) everybody() iter.Seq[*Viewer] {
	return func(yield func(*Viewer) bool) {
		for _, v := range h.viewers {
			if !yield(v) {
				return
			}
		}
		for set := range h.pending {
			for v := range h.pending[set] {
				if h.viewers[v.id] != v && !yield(v) {
					return
				}
			}
		}
	}
}

// join takes in a viewer, which sees nothing before its grant, or one of the
// same set, was taken.
func (h *Hub) join(v *Viewer) {
	use, err := h.grants.Begin(v.grant, h.noteEnded)
	if err != nil { // since its ticket was made
		v.keys.Leave()
		why, kind, cause := whyEnded(err)
		h.metrics.ViewersCut.WithLabelValues(why).Inc()
		v.outbox.close(kind, cause)
		return
	}
	v.use = use
	v.set = h.key.setOf(v.grant)
	v.rights = v.set.Rights
	admitted, effects := h.roster.Join(v.set, asked(v.grant, v.token), time.Now())
	if admitted {
		h.admit(v)
	} else {
		h.pending.add(v)
		h.explain(v)
	}
	h.carry(effects)
}

// explain tells one who waits to be admitted that nobody can be asked.
func (h *Hub) explain(v *Viewer) {
	switch {
	case h.admitter != nil:
	case h.finished.Load(): // there won't be anybody; another hub can ask
		h.cut(v, cutUnanswered, protocol.KindUnavailable, protocol.KindUnavailable.Text())
	default:
		v.outbox.hint(protocol.Waiting{Reason: protocol.WaitingSandbox})
	}
}

// admit lets in a viewer whose grant, or one of the same set, was taken. What it
// sees first is up to the turn-taking rules, which greet it at once or after its
// claim is answered.
func (h *Hub) admit(v *Viewer) {
	h.pending.drop(v)
	if h.viewers[v.id] == v {
		h.widen(v)
		return
	}
	h.viewers[v.id] = v
	h.metrics.Viewers.Inc()
	h.presence.add(v, v.may(roster.Control))
	h.mayLead(v)
	h.step(turn.Joined{
		Socket: v.id, User: v.user, Name: v.name, GrantID: h.roster.Front(v.set), CanControl: v.may(roster.Control),
		Owns: v.may(roster.Own),
	})
	early := v.early
	v.early = nil
	for _, m := range early {
		h.obey(v, m)
	}
}

// widen gives a viewer the rights of its newer grant, which was taken.
func (h *Hub) widen(v *Viewer) {
	could := v.may(roster.Control)
	v.rights = v.set.Rights
	h.presence.change(v, could, v.may(roster.Control))
	h.mayLead(v)
	h.step(turn.Renewed{Socket: v.id, GrantID: h.roster.Front(v.set), CanControl: v.may(roster.Control), Owns: v.may(roster.Own)})
}

func (h *Hub) leave(v *Viewer) {
	sees, now := h.viewers[v.id] == v, time.Now()
	if !sees && !h.pending.has(v) {
		return
	}
	v.use.Stop()
	h.pending.drop(v)
	if sees {
		delete(h.viewers, v.id)
		h.metrics.Viewers.Dec()
		h.presence.remove(v, v.may(roster.Control))
		h.mayLead(v)
		h.wants.drop(v)
		h.unpace(v)
		v.reader.Detach()
	}
	v.keys.Leave()
	if sees {
		h.step(turn.Left{Socket: v.id})
	}
	h.carry(h.roster.Leave(v.set, v.grant.ID, h.grants.Check(v.grant) != nil, now))
}

// renew puts a viewer under another grant of the same user. What it may do less
// counts at once; what more, when the grant was taken.
func (h *Hub) renew(v *Viewer, grant *jws.Grant, token string) {
	sees, now := h.viewers[v.id] == v, time.Now()
	if !sees && !h.pending.has(v) {
		return
	}
	if err := v.use.Renew(grant); err != nil { // since the gateway has verified it
		why, kind, cause := whyEnded(err)
		h.cut(v, why, kind, cause)
		return
	}
	h.pending.drop(v)
	old, set, could := v.grant, v.set, v.may(roster.Control)
	v.grant, v.token, v.set = grant, token, h.key.setOf(grant)
	admitted, effects := h.roster.Join(v.set, asked(grant, token), now)
	if v.rights &= v.set.Rights; admitted || !sees {
		v.rights = v.set.Rights
	}
	if !admitted {
		h.pending.add(v)
	}
	h.carry(effects)
	switch {
	case sees:
		h.renewed(v, could)
	case admitted:
		h.admit(v)
	}
	h.carry(h.roster.Leave(set, old.ID, false, now))
	v.outbox.Tell(protocol.Reauthed{ExpiresAt: grant.Expires().Unix()})
}

// renewed follows a newer grant of a viewer who could have control or not.
func (h *Hub) renewed(v *Viewer, could bool) {
	if v.wantsAll && !v.may(roster.Record) {
		v.wantsAll = false
		v.reader.SetExact(false)
		h.repace(v)
	}
	h.mayLead(v)
	front := h.roster.Front(v.set)
	if front == "" {
		front = v.grant.ID // it is being asked about
	}
	h.step(turn.Renewed{Socket: v.id, GrantID: front, CanControl: v.may(roster.Control), Owns: v.may(roster.Own)})
	h.presence.change(v, could, v.may(roster.Control))
}

// carry carries out what the roster wants.
func (h *Hub) carry(effects []roster.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case roster.Ask:
			if h.admitter != nil {
				h.admitter.Ask(e.Handle, e.Token)
			}
		case roster.Forget:
			if h.admitter != nil {
				h.admitter.Forget(e.ID)
			}
		case roster.Admit:
			for _, v := range h.pending.of(e.Key) {
				h.admit(v)
			}
		case roster.Refuse:
			h.turnAway(cutRefused, protocol.KindForbidden, "the sandbox does not accept this grant",
				func(v *Viewer) bool { return v.set == e.Key && v.grant.ID == e.ID })
		case roster.GiveUp:
			h.turnAway(cutUnanswered, protocol.KindUnavailable, "the sandbox does not answer",
				func(v *Viewer) bool { return v.set == e.Key })
		case roster.Succeed:
			h.step(turn.Succeeded{From: e.From, To: e.To})
		default:
			h.metrics.Unhandled.WithLabelValues(unhandledRoster).Inc()
		}
	}
	if key, g := h.roster.Bearer(); g.ID != "" && g.ID != h.dial.bearer.Load().grant.ID {
		h.dial.bearer.Store(&bearer{key, g})
	}
}

// turnAway cuts the viewers for whom pick holds.
func (h *Hub) turnAway(why string, kind protocol.Kind, cause string, pick func(*Viewer) bool) {
	for v := range h.everybody() {
		if pick(v) {
			h.cut(v, why, kind, cause)
		}
	}
}

// agentBack has those asked about whom the new stream needs first: its bearer was
// taken with it, and who has control may go on typing. arrive must follow, once
// the turn-taking rules know of the stream.
func (h *Hub) agentBack(l *link) (arrive func()) {
	h.admitter = l
	var admits, others []roster.Effect
	for _, e := range h.roster.Opened(l.bearer.key, l.bearer.grant, l.opened.Lease.Holder, time.Now()) {
		if _, ok := e.(roster.Admit); ok {
			admits = append(admits, e)
		} else {
			others = append(others, e)
		}
	}
	h.carry(others)
	return func() {
		h.carry(admits)
		h.carry(h.roster.Pump())
	}
}

// agentGone: there is nobody to ask any more.
func (h *Hub) agentGone() {
	h.admitter = nil
	h.carry(h.roster.Lost(h.finished.Load()))
	for v := range h.everybody() {
		if h.viewers[v.id] != v {
			h.explain(v)
		}
	}
}

// replaceBearer: the agent doesn't accept the bearer's grant any more. It cuts
// the viewers who came with it, and reports whether there is another to try.
func (h *Hub) replaceBearer(b *bearer, err error) (another bool) {
	kind := protocol.AsError(err).Kind
	h.turnAway(cutRefused, kind, kind.Text(), func(v *Viewer) bool { return v.grant.ID == b.grant.ID })
	another, effects := h.roster.RefuseBearer(b.key, b.grant.ID, time.Now())
	h.carry(effects)
	return another
}
