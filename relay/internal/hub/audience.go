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

// An audience decides who is here and who may see: it knows those who see and
// those whose grants are being asked about, and ends them with their grants.
type audience struct {
	// Static after construction; grants is set before anybody joins.
	key      Key
	metrics  *Metrics
	floor    floor
	finished *atomic.Bool            // the hub's
	bearer   *atomic.Pointer[bearer] // the dialer's
	grants   *lifetime.Grants
	ended    chan struct{} // 1 element: somebody's grant has ended

	// Owned by the hub's run.
	viewers  map[turn.SocketID]*Viewer // those who may see
	pending  pending                   // those who don't yet
	roster   *roster.Roster            // whose grants are good
	admitter Admitter                  // nil: there is nobody to ask
}

// A floor is told of those who see. The hub is one.
type floor interface {
	// entered says that a viewer sees from now on.
	entered(v *Viewer)
	// changed says that a viewer who sees has other rights, and whether it could
	// have control before.
	changed(v *Viewer, could bool)
	// exited says that a viewer sees no more.
	exited(v *Viewer)
	// step applies the turn-taking rules.
	step(e turn.Event)
}

// newAudience returns an empty audience whose first viewer comes with a grant.
func newAudience(key Key, first *bearer, h *Hub) audience {
	a := audience{
		key: key, metrics: h.metrics, floor: h, finished: &h.finished, bearer: &h.dial.bearer,
		grants: lifetime.New(lifetime.Options{}), ended: make(chan struct{}, 1),
		viewers: map[turn.SocketID]*Viewer{}, pending: pending{}, roster: roster.New(grantWait, first.key, first.grant),
	}
	a.bearer.Store(first)
	return a
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

// sees reports whether v may see, and isn't gone.
func (a *audience) sees(v *Viewer) bool { return a.viewers[v.id] == v }

// everybody yields those who may see and those who may not yet. The loop may
// have them leave.
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

// join takes in a viewer, which sees nothing before its grant, or one of the
// same set, was taken.
func (a *audience) join(v *Viewer) {
	use, err := a.grants.Begin(v.grant, a.noteEnded)
	if err != nil { // since its ticket was made
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

// explain tells one who waits to be admitted that nobody can be asked.
func (a *audience) explain(v *Viewer) {
	switch {
	case a.admitter != nil:
	case a.finished.Load(): // there won't be anybody; another hub can ask
		a.cut(v, cutUnanswered, protocol.KindUnavailable, protocol.KindUnavailable.Text())
	default:
		v.outbox.hint(protocol.Waiting{Reason: protocol.WaitingSandbox})
	}
}

// admit lets in a viewer whose grant, or one of the same set, was taken. What it
// sees first is up to the turn-taking rules, which greet it at once or after its
// claim is answered.
func (a *audience) admit(v *Viewer) {
	a.pending.drop(v)
	if a.sees(v) { // it has a newer grant
		could := v.may(roster.Control)
		v.rights = v.set.Rights
		a.floor.changed(v, could)
		return
	}
	a.viewers[v.id] = v
	a.metrics.Viewers.Inc()
	a.floor.entered(v)
}

// leave takes out a viewer.
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

// renew puts a viewer under another grant of the same user. What it may do less
// counts at once; what more, when the grant was taken.
func (a *audience) renew(v *Viewer, grant *jws.Grant, token string) {
	sees, now := a.sees(v), time.Now()
	if !sees && !a.pending.has(v) {
		return
	}
	if err := v.use.Renew(grant); err != nil { // since the gateway has verified it
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

// front returns the grant that stands for v's set: the one in use, else its own,
// which is being asked about.
func (a *audience) front(v *Viewer) protocol.GrantID {
	return cmp.Or(a.roster.Front(v.set), v.grant.ID)
}

// carry carries out what the roster wants.
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

// turnAway cuts the viewers for whom pick holds.
func (a *audience) turnAway(why string, kind protocol.Kind, cause string, pick func(*Viewer) bool) {
	for v := range a.everybody() {
		if pick(v) {
			a.cut(v, why, kind, cause)
		}
	}
}

// linked has the agent at a new stream asked. Those whom the stream needs come
// first: its bearer was taken with it, and who has control may go on typing.
// arrive must follow, once the turn-taking rules know of the stream.
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

// unlinked says that there is nobody to ask any more.
func (a *audience) unlinked() {
	a.admitter = nil
	a.carry(a.roster.Lost(a.finished.Load()))
	for v := range a.everybody() {
		if !a.sees(v) {
			a.explain(v)
		}
	}
}

// replaceBearer follows the agent's refusal of the bearer's grant. It cuts the
// viewers who came with it, and reports whether there is another to try.
func (a *audience) replaceBearer(b *bearer, err error) (another bool) {
	kind := protocol.AsError(err).Kind
	a.turnAway(cutRefused, kind, kind.Text(), func(v *Viewer) bool { return v.grant.ID == b.grant.ID })
	another, effects := a.roster.RefuseBearer(b.key, b.grant.ID, time.Now())
	a.carry(effects)
	return another
}

// answered follows the agent's answer about a grant.
func (a *audience) answered(m protocol.Granted) {
	a.carry(a.roster.Answer(roster.Handle(m.Handle), m.GrantID, m.Refused == "", time.Now()))
}

// tell sends messages to all who were greeted.
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

// cut ends a viewer that may not stay. It is out of the audience at once, however
// long its socket takes.
func (a *audience) cut(v *Viewer, why string, kind protocol.Kind, cause string) {
	a.metrics.ViewersCut.WithLabelValues(why).Inc()
	v.outbox.close(kind, cause)
	a.leave(v)
}

// sendAway ends all sockets: the terminal is to be had at origin, or, when that
// is empty, nobody knows where.
func (a *audience) sendAway(origin string) {
	if origin != "" {
		for v := range a.everybody() {
			a.metrics.Moved.Inc()
			v.outbox.Tell(protocol.Moved{Origin: origin})
		}
	}
	a.close(protocol.KindRestarting, "the relay is going away")
}

// close ends all sockets, and nothing else: the hub is over.
func (a *audience) close(kind protocol.Kind, cause string) {
	for v := range a.everybody() {
		v.outbox.close(kind, cause)
	}
}

// noteEnded has run look whose grant has ended. It never waits.
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
