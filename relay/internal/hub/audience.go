package hub

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// grantWait is how long somebody waits for an answer about a grant. It is a
// variable so that a test can raise it.
var grantWait = protocol.GrantWait

// maxEarly bounds the messages from a viewer that isn't admitted yet.
const maxEarly = 64

// An Admitter decides who may see a terminal. It never blocks: it answers each
// question later, to the roster, by its handle. The agent is one, through the
// hub's stream to it.
type Admitter interface {
	// Ask asks about a grant. The handle is used only once.
	Ask(h roster.Handle, token string)
	// Forget says that a grant isn't used any more.
	Forget(id protocol.GrantID)
}

// An audience tracks who has joined and who is admitted, and ends viewers with
// their grants.
type audience struct {
	// Static after construction; grants is set before anybody joins.
	key      Key
	metrics  *Metrics
	floor    floor
	finished *atomic.Bool            // the hub's
	bearer   *atomic.Pointer[bearer] // the dialer's
	grants   *lifetime.Grants
	ended    chan struct{} // 1 element: some grant has ended

	// Owned by the hub's run.
	viewers  map[turn.SocketID]*Viewer // the admitted ones
	pending  pending                   // those that wait for admission
	roster   *roster.Roster            // which grants are good
	admitter Admitter                  // nil: nobody can be asked
}

// A floor is notified of admitted viewers. The hub is one.
type floor interface {
	// entered says that a viewer was admitted.
	entered(v *Viewer)
	// changed says that an admitted viewer has other rights, and whether it could
	// have control before.
	changed(v *Viewer, could bool)
	// exited says that an admitted viewer has left.
	exited(v *Viewer)
	// step applies the turn-taking rules.
	step(e turn.Event)
}

// newAudience returns an empty audience whose first viewer has the grant first.
func newAudience(key Key, first *bearer, h *Hub) audience {
	a := audience{
		key: key, metrics: h.metrics, floor: h, finished: &h.finished, bearer: &h.dial.bearer,
		grants: lifetime.New(lifetime.Options{}), ended: make(chan struct{}, 1),
		viewers: map[turn.SocketID]*Viewer{}, pending: pending{}, roster: roster.New(grantWait, first.key, first.grant),
	}
	a.bearer.Store(first)
	return a
}

// pending are the viewers that wait for the answer about their grants, by the
// sets of the grants. A viewer that was admitted and waits because of a newer
// grant is also in the audience's viewers. Owned by run.
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

// of returns the waiting viewers of a set, in order of arrival.
func (p pending) of(set roster.Key) []*Viewer {
	return slices.SortedFunc(maps.Keys(p[set]), func(a, b *Viewer) int { return cmp.Compare(a.id, b.id) })
}

// setOf returns g's set at this terminal.
func (k Key) setOf(g *jws.Grant) roster.Key {
	return roster.Key{User: g.Subject, Rights: roster.RightsOf(g, k.Session, k.PTY)}
}

// asked returns g in the roster's form.
func asked(g *jws.Grant, token string) roster.Grant {
	return roster.Grant{ID: g.ID, Ends: g.ExpiresAt, Token: token}
}

// sees reports whether v is admitted and hasn't left.
func (a *audience) sees(v *Viewer) bool { return a.viewers[v.id] == v }

// everybody yields the admitted and the waiting viewers. The loop may remove
// them.
func (a *audience) everybody() iter.Seq[*Viewer] {
	return func(yield func(*Viewer) bool) {
		for _, v := range a.viewers {
			if !yield(v) {
				return
			}
		}
		for set := range a.pending {
			for v := range a.pending[set] {
				if !a.sees(v) && !yield(v) {
					return
				}
			}
		}
	}
}

// join adds a viewer. It sees nothing until its grant, or one of the same set,
// is accepted.
func (a *audience) join(v *Viewer) {
	use, err := a.grants.Begin(v.grant, a.noteEnded)
	if err != nil { // it ended after the ticket was issued
		v.keys.Leave()
		why, kind, cause := whyEnded(err)
		a.metrics.ViewersCut.WithLabelValues(why).Inc()
		v.outbox.close(kind, cause)
		return
	}
	v.use = use
	v.set = a.key.setOf(v.grant)
	v.rights = v.set.Rights
	admitted, effects := a.roster.Join(v.set, asked(v.grant, v.token), time.Now())
	if admitted {
		a.admit(v)
	} else {
		a.pending.add(v)
		a.explain(v)
	}
	a.carry(effects)
}

// explain tells a waiting viewer why nobody can be asked.
func (a *audience) explain(v *Viewer) {
	switch {
	case a.admitter != nil:
	case a.finished.Load(): // nobody will come; another hub can ask
		a.cut(v, cutUnanswered, protocol.KindUnavailable, protocol.KindUnavailable.Text())
	default:
		v.outbox.hint(protocol.Waiting{Reason: protocol.WaitingSandbox})
	}
}

// admit admits a viewer after its grant, or one of the same set, was accepted.
// The turn-taking rules greet it at once or after its claim is answered.
func (a *audience) admit(v *Viewer) {
	a.pending.drop(v)
	if a.sees(v) { // it waited because of a newer grant
		could := v.may(roster.Control)
		v.rights = v.set.Rights
		a.floor.changed(v, could)
		return
	}
	a.viewers[v.id] = v
	a.metrics.Viewers.Inc()
	a.floor.entered(v)
}

// leave removes a viewer.
func (a *audience) leave(v *Viewer) {
	sees, now := a.sees(v), time.Now()
	if !sees && !a.pending.has(v) {
		return
	}
	v.use.Stop()
	a.pending.drop(v)
	if sees {
		delete(a.viewers, v.id)
		a.metrics.Viewers.Dec()
		a.floor.exited(v)
	} else {
		v.keys.Leave()
	}
	a.carry(a.roster.Leave(v.set, v.grant.ID, a.grants.Check(v.grant) != nil, now))
}

// renew moves a viewer to another grant of the same user. Lost rights count at
// once; new ones once the grant is accepted.
func (a *audience) renew(v *Viewer, grant *jws.Grant, token string) {
	sees, now := a.sees(v), time.Now()
	if !sees && !a.pending.has(v) {
		return
	}
	if err := v.use.Renew(grant); err != nil { // it ended after the gateway verified it
		why, kind, cause := whyEnded(err)
		a.cut(v, why, kind, cause)
		return
	}
	a.pending.drop(v)
	old, set, could := v.grant, v.set, v.may(roster.Control)
	v.grant, v.token, v.set = grant, token, a.key.setOf(grant)
	admitted, effects := a.roster.Join(v.set, asked(grant, token), now)
	if v.rights &= v.set.Rights; admitted || !sees {
		v.rights = v.set.Rights
	}
	if !admitted {
		a.pending.add(v)
	}
	a.carry(effects)
	switch {
	case sees:
		a.floor.changed(v, could)
	case admitted:
		a.admit(v)
	}
	a.carry(a.roster.Leave(set, old.ID, false, now))
	v.outbox.Tell(protocol.Reauthed{ExpiresAt: grant.Expires().Unix()})
}

// front returns the grant that represents v's set: the accepted one, otherwise
// its own, which is being asked about.
func (a *audience) front(v *Viewer) protocol.GrantID {
	return cmp.Or(a.roster.Front(v.set), v.grant.ID)
}

// carry executes the roster's effects.
func (a *audience) carry(effects []roster.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case roster.Ask:
			if a.admitter != nil {
				a.admitter.Ask(e.Handle, e.Token)
			}
		case roster.Forget:
			if a.admitter != nil {
				a.admitter.Forget(e.ID)
			}
		case roster.Admit:
			for _, v := range a.pending.of(e.Key) {
				a.admit(v)
			}
		case roster.Refuse:
			a.turnAway(cutRefused, protocol.KindForbidden, "the sandbox does not accept this grant",
				func(v *Viewer) bool { return v.set == e.Key && v.grant.ID == e.ID })
		case roster.GiveUp:
			a.turnAway(cutUnanswered, protocol.KindUnavailable, "the sandbox does not answer",
				func(v *Viewer) bool { return v.set == e.Key })
		case roster.Succeed:
			a.floor.step(turn.Succeeded{From: e.From, To: e.To})
		default:
			a.metrics.Unhandled.WithLabelValues(unhandledRoster).Inc()
		}
	}
	if key, g := a.roster.Bearer(); g.ID != "" && g.ID != a.bearer.Load().grant.ID {
		a.bearer.Store(&bearer{key, g})
	}
}

// turnAway cuts the viewers for which pick is true.
func (a *audience) turnAway(why string, kind protocol.Kind, cause string, pick func(*Viewer) bool) {
	for v := range a.everybody() {
		if pick(v) {
			a.cut(v, why, kind, cause)
		}
	}
}

// linked asks the agent at a new stream. It begins with the grants that the
// stream needs: its bearer was accepted with it, and the controller may
// continue typing. The caller must call arrive once the turn-taking rules know
// of the stream.
func (a *audience) linked(l *link) (arrive func()) {
	a.admitter = l
	var admits, others []roster.Effect
	for _, e := range a.roster.Opened(l.bearer.key, l.bearer.grant, l.opened.Lease.Holder, time.Now()) {
		if _, ok := e.(roster.Admit); ok {
			admits = append(admits, e)
		} else {
			others = append(others, e)
		}
	}
	a.carry(others)
	return func() {
		a.carry(admits)
		a.carry(a.roster.Pump())
	}
}

// unlinked notes that nobody can be asked.
func (a *audience) unlinked() {
	a.admitter = nil
	a.carry(a.roster.Lost(a.finished.Load()))
	for v := range a.everybody() {
		if !a.sees(v) {
			a.explain(v)
		}
	}
}

// replaceBearer handles the agent's refusal of the bearer's grant. It cuts the
// viewers with that grant, and reports whether there is another bearer.
func (a *audience) replaceBearer(b *bearer, err error) (another bool) {
	kind := protocol.AsError(err).Kind
	a.turnAway(cutRefused, kind, kind.Text(), func(v *Viewer) bool { return v.grant.ID == b.grant.ID })
	another, effects := a.roster.RefuseBearer(b.key, b.grant.ID, time.Now())
	a.carry(effects)
	return another
}

// answered handles the agent's answer about a grant.
func (a *audience) answered(m protocol.Granted) {
	a.carry(a.roster.Answer(roster.Handle(m.Handle), m.GrantID, m.Refused == "", time.Now()))
}

// tell sends messages to all greeted viewers.
func (a *audience) tell(messages ...protocol.ServerMessage) {
	for _, m := range messages {
		frame := replay.AppendTextFrame(nil, protocol.EncodeServerMessage(m))
		for _, v := range a.viewers {
			if v.greeted {
				v.outbox.tellFrame(frame)
			}
		}
	}
}

// cut ends a viewer that may not stay. It leaves the audience at once, however
// long its socket takes to close.
func (a *audience) cut(v *Viewer, why string, kind protocol.Kind, cause string) {
	a.metrics.ViewersCut.WithLabelValues(why).Inc()
	v.outbox.close(kind, cause)
	a.leave(v)
}

// sendAway ends all sockets. It names origin as the terminal's new relay,
// unless empty.
func (a *audience) sendAway(origin string) {
	if origin != "" {
		for v := range a.everybody() {
			a.metrics.Moved.Inc()
			v.outbox.Tell(protocol.Moved{Origin: origin})
		}
	}
	a.close(protocol.KindRestarting, "the relay is going away")
}

// close ends all sockets without further steps: the hub is over.
func (a *audience) close(kind protocol.Kind, cause string) {
	for v := range a.everybody() {
		v.outbox.close(kind, cause)
	}
}

// noteEnded tells run that some grant has ended. It never blocks.
func (a *audience) noteEnded(error) {
	select {
	case a.ended <- struct{}{}:
	default: // run is about to look
	}
}

// cutEnded cuts the viewers whose grants have ended.
func (a *audience) cutEnded() {
	for v := range a.everybody() {
		if err := a.grants.Check(v.grant); err != nil {
			why, kind, cause := whyEnded(err)
			a.cut(v, why, kind, cause)
		}
	}
}
