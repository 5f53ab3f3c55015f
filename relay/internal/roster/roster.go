// Package roster knows by whose word the viewers of one terminal may see it: a
// pure state machine without a clock, whose effects somebody else carries out.
//
// Whoever admits is asked about grants and answers each, later. Of a person's
// grants with the same rights, a set, it is asked about one, and that one
// stands for all: when it ends, is revoked, or nobody uses it any more, the
// next of the set takes its place. A stream that is lost takes the answers
// along: they are asked for again, and meanwhile a set stays admitted for a
// while, though nobody new comes in by it.
package roster

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Window bounds the grants that are asked about and not answered, in bytes.
// There is always one.
const Window = 128 << 10

// askOverhead is charged for each grant beside its token.
const askOverhead = 64

// A Handle names one question. None is 0.
type Handle uint64

// Rights are what a grant allows at the terminal, beside to view it.
type Rights uint8

// The rights that set grants apart.
const (
	Control Rights = 1 << iota
	Record
	Own // control can be taken back from whoever has it
)

// RightsOf returns what g allows at a terminal.
func RightsOf(g *jws.Grant, session protocol.SessionID, pty protocol.PTYID) (r Rights) {
	if g.Allows(session, pty, protocol.CapControl) {
		r |= Control
	}
	if g.Allows(session, pty, protocol.CapRecord) {
		r |= Record
	}
	if g.Allows(session, "", protocol.CapAdmin) {
		r |= Own
	}
	return r
}

// A Key names a set: a person's grants with the same rights.
type Key struct {
	User   protocol.UserID
	Rights Rights
}

// A Grant is one that a viewer has presented.
type Grant struct {
	ID    protocol.GrantID
	Ends  int64  // Unix seconds
	Token string // its compact form
}

// An Effect is something to do: one of the types below, in order.
type Effect interface{ effect() }

type (
	// Ask: whoever admits is to be asked about a grant.
	Ask struct {
		Handle Handle
		Token  string
	}
	// Forget: whoever admits may forget a grant.
	Forget struct{ ID protocol.GrantID }
	// Admit: the viewers of a set may see.
	Admit struct{ Key Key }
	// Refuse: the viewers under a grant may not see any more. The roster knows
	// them no longer.
	Refuse struct {
		Key Key
		ID  protocol.GrantID
	}
	// GiveUp: nobody has answered in time, so the viewers of a set may not see
	// any more. The roster knows them no longer.
	GiveUp struct{ Key Key }
	// Succeed: another grant stands for a set.
	Succeed struct{ From, To protocol.GrantID }
)

func (Ask) effect()     {}
func (Forget) effect()  {}
func (Admit) effect()   {}
func (Refuse) effect()  {}
func (GiveUp) effect()  {}
func (Succeed) effect() {}

// A Roster is the state. Use New. It is not safe for concurrent use.
type Roster struct {
	wait time.Duration // for an answer

	sets   map[Key]*set
	count  uint64      // sets there ever were
	open   bool        // there is somebody to ask
	held   bool        // nobody more is asked before Pump
	asks   []*question // unanswered, oldest first
	bytes  int         // of asks
	queue  []*set      // to be asked about, in that order; some need it no more
	last   Handle
	bearer *set      // whose grant opens the next stream
	due    time.Time // nobody's time is over before; zero: nobody's runs

	effects []Effect
}

// New returns a Roster without viewers that waits so long for an answer. The
// first stream is opened under g.
func New(wait time.Duration, key Key, g Grant) *Roster {
	r := &Roster{wait: wait, sets: map[Key]*set{}}
	r.bearer = r.set(key)
	r.bearer.front = g
	return r
}

func (r *Roster) emit(e Effect) { r.effects = append(r.effects, e) }

// take returns the effects so far.
func (r *Roster) take() []Effect {
	effects := r.effects
	r.effects = nil
	return effects
}

// Join adds a viewer under a grant. It reports whether the viewer may see at
// once; else an Admit, a Refuse or a GiveUp follows, when there is a stream.
func (r *Roster) Join(key Key, g Grant, now time.Time) (admitted bool, effects []Effect) {
	s := r.set(key)
	if len(s.members) == 0 && s.front.ID != g.ID {
		s.live, s.seen = false, false // that one has left
	}
	m := s.members[g.ID]
	if m == nil {
		m = &member{Grant: g}
		s.members[g.ID] = m
	}
	m.viewers++
	r.settle(s, now)
	return s.live, r.take()
}

// Leave takes a viewer back. ended says that its grant is good no more, for none
// of its viewers: they all leave now.
func (r *Roster) Leave(key Key, id protocol.GrantID, ended bool, now time.Time) []Effect {
	s := r.sets[key]
	if s == nil {
		return nil
	}
	if ended && s.front.ID == id {
		s.live = false
	}
	if m := s.members[id]; m != nil {
		if m.viewers--; m.viewers == 0 || ended {
			delete(s.members, id)
		}
	}
	r.settle(s, now)
	return r.take()
}

// Answer notes what became of the question h. id is the grant, where it could be
// read. Who doesn't know handles says 0, which stands for the oldest question. A
// refusal may also be of a grant that was taken before.
func (r *Roster) Answer(h Handle, id protocol.GrantID, taken bool, now time.Time) []Effect {
	at := slices.IndexFunc(r.asks, func(q *question) bool { return q.handle == h })
	if h == 0 && len(r.asks) > 0 && (id == "" || r.asks[0].grant.ID == id) {
		at = 0
	}
	if at < 0 {
		if !taken {
			r.revoke(id, now)
		}
		return r.take()
	}
	q := r.asks[at]
	r.asks = slices.Delete(r.asks, at, at+1)
	r.bytes -= q.bytes()
	if s := q.set; s != nil {
		s.asking = nil
		if taken {
			r.taken(s, q.grant)
		} else {
			r.refuse(s, q.grant.ID)
		}
		r.settle(s, now)
	}
	r.pump()
	return r.take()
}

// revoke: a grant that stands for a set is good no more.
func (r *Roster) revoke(id protocol.GrantID, now time.Time) {
	for _, s := range r.sets {
		if id != "" && s.front.ID == id && s.live {
			r.refuse(s, id)
			r.settle(s, now)
			return
		}
	}
}

// Lost: there is nobody to ask any more. After an end, for the terminal is over,
// what was answered counts on; else it doesn't.
func (r *Roster) Lost(end bool) []Effect {
	r.open, r.held, r.asks, r.bytes, r.queue, r.due = false, false, nil, 0, nil, time.Time{}
	for _, s := range r.sets {
		s.live = s.live && end
		s.asking, s.queued, s.until = nil, false, time.Time{}
	}
	if len(r.bearer.members) == 0 {
		r.choose()
	}
	return r.take()
}

// Opened: there is a new stream, opened under g. For now only the sets of first
// are asked about; Pump asks about the others.
func (r *Roster) Opened(key Key, g Grant, first protocol.UserID, now time.Time) []Effect {
	r.open, r.held = true, true
	r.taken(r.set(key), g)
	for _, s := range r.sets {
		r.settle(s, now)
	}
	slices.SortFunc(r.queue, func(a, b *set) int {
		return cmp.Or(before(a.key.User == first, b.key.User == first), before(a.seen, b.seen), cmp.Compare(a.number, b.number))
	})
	for len(r.queue) > 0 && r.queue[0].key.User == first {
		r.askNext()
	}
	return r.take()
}

// before orders what has something before what hasn't.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Pump asks about those that wait for it, as far as the window allows.
func (r *Roster) Pump() []Effect {
	r.held = false
	r.pump()
	return r.take()
}

// Hurry has the set that a grant stands for asked about at once.
func (r *Roster) Hurry(id protocol.GrantID) []Effect {
	at := slices.IndexFunc(r.queue, func(s *set) bool { return s.front.ID == id })
	if at < 0 {
		return nil
	}
	s := r.queue[at]
	r.queue = slices.Insert(slices.Delete(r.queue, at, at+1), 0, s)
	r.askNext()
	return r.take()
}

// Late gives up the sets whose time is over at now.
func (r *Roster) Late(now time.Time) []Effect {
	if r.due.IsZero() || now.Before(r.due) {
		return nil
	}
	r.due = time.Time{}
	for _, s := range r.sets {
		switch {
		case s.until.IsZero():
		case now.Before(s.until):
			r.expect(s.until)
		default:
			clear(s.members)
			r.emit(GiveUp{s.key})
			r.settle(s, now)
		}
	}
	return r.take()
}

// Due returns a time before which Late has nothing to do; zero: it has nothing
// to do at all.
func (r *Roster) Due() time.Time { return r.due }

// Front returns the id of the grant that stands for a set, or did on the last
// stream; "" for none.
func (r *Roster) Front(key Key) protocol.GrantID {
	if s := r.sets[key]; s != nil {
		return s.front.ID
	}
	return ""
}

// Bearer returns the grant under which the next stream is to be opened; one
// without an ID if there is none.
func (r *Roster) Bearer() (Key, Grant) { return r.bearer.key, r.bearer.next() }

// RefuseBearer: no stream can be opened under a grant. It reports whether there
// is another one to try.
func (r *Roster) RefuseBearer(key Key, id protocol.GrantID, now time.Time) (another bool, effects []Effect) {
	if s := r.sets[key]; s != nil && (s.front.ID == id || s.members[id] != nil) {
		r.refuse(s, id)
		r.settle(s, now)
		r.choose()
	}
	_, next := r.Bearer()
	return next.ID != "" && next.ID != id, r.take()
}
