// Package roster tracks which grants let the viewers of one terminal see it. It
// is a pure state machine without a clock; its caller executes the effects.
//
// The admitter is asked about grants and answers each later. A person's grants
// with the same rights form a set. It is asked about one of them, which then
// represents the set; when that one expires, is revoked, or has no viewer any
// more, the next takes its place. The loss of a stream voids the answers. They
// are asked for again; meanwhile a set stays admitted for a while, but admits
// nobody new.
package roster

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Window bounds the unanswered questions by the size of their grants, in bytes.
// One question is always allowed.
const Window = 128 << 10

// askOverhead is charged per grant besides its token.
const askOverhead = 64

// A Handle names one question; 0 is none.
type Handle uint64

// Rights are what a grant allows at the terminal besides viewing.
type Rights uint8

// The rights that distinguish sets.
const (
	Control Rights = 1 << iota
	Record
	Own // take back control from anybody
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

// A Grant is one presented by a viewer.
type Grant struct {
	ID    protocol.GrantID
	Ends  int64  // Unix seconds
	Token string // its compact form
}

// An Effect is something to do: one of the types below, in order.
type Effect interface{ effect() }

type (
	// Ask asks the admitter about a grant.
	Ask struct {
		Handle Handle
		Token  string
	}
	// Forget tells the admitter that a grant isn't used any more.
	Forget struct{ ID protocol.GrantID }
	// Admit admits the viewers of a set.
	Admit struct{ Key Key }
	// Refuse ends the viewers under a grant. The roster has removed them.
	Refuse struct {
		Key Key
		ID  protocol.GrantID
	}
	// GiveUp ends the viewers of a set, as no answer came in time. The roster has
	// removed them.
	GiveUp struct{ Key Key }
	// Succeed says that another grant represents a set.
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

	sets       map[Key]*set
	count      uint64      // sets so far
	open       bool        // there is an admitter
	held       bool        // no more questions before Pump
	asks       []*question // unanswered, oldest first
	bytes      int         // of asks
	queue      []*set      // sets to ask about, in order; some may no longer need it
	last       Handle
	bearer     *set       // the set whose grant opens the next stream
	candidates candidates // for bearer
	due        time.Time  // no set's wait ends earlier; zero: none is waiting

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

// take returns the effects so far and clears them.
func (r *Roster) take() []Effect {
	effects := r.effects
	r.effects = nil
	return effects
}

// Join adds a viewer under a grant. It reports whether the viewer is admitted
// at once; otherwise an Admit, a Refuse or a GiveUp follows once there is a
// stream.
func (r *Roster) Join(key Key, g Grant, now time.Time) (admitted bool, effects []Effect) {
	s := r.set(key)
	if len(s.members) == 0 && s.front.ID != g.ID {
		s.live, s.seen = false, false // its viewer has left
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

// Leave removes a viewer. ended says that its grant is no longer valid for any
// viewer: they all leave now.
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

// Answer handles the answer to the question h. id is the grant, if it was
// readable. Peers without handles send 0, which means the oldest question. A
// refusal may also be of a grant that was accepted before.
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

// revoke handles the end of a grant that represents a set.
func (r *Roster) revoke(id protocol.GrantID, now time.Time) {
	for _, s := range r.sets {
		if id != "" && s.front.ID == id && s.live {
			r.refuse(s, id)
			r.settle(s, now)
			return
		}
	}
}

// Lost notes that there is no admitter. At the terminal's end answers stay
// valid; otherwise they are void.
func (r *Roster) Lost(end bool) []Effect {
	r.open, r.held, r.asks, r.bytes, r.queue, r.due = false, false, nil, 0, nil, time.Time{}
	for _, s := range r.sets {
		s.live = s.live && end
		s.asking, s.queued, s.until = nil, false, time.Time{}
	}
	r.rankAll()
	if len(r.bearer.members) == 0 {
		r.choose()
	}
	return r.take()
}

// Opened notes a new stream, opened under g. For now it asks only about the
// sets of first; Pump asks about the others.
func (r *Roster) Opened(key Key, g Grant, first protocol.UserID, now time.Time) []Effect {
	r.open, r.held = true, true
	r.rankAll()
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

// before orders true before false.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Pump asks about the queued sets, as far as the window allows.
func (r *Roster) Pump() []Effect {
	r.held = false
	r.pump()
	return r.take()
}

// Hurry asks about the set that a grant represents at once.
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

// Late gives up the sets whose wait is over at now.
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

// Front returns the id of the grant that represents a set, or did on the last
// stream; "" for none.
func (r *Roster) Front(key Key) protocol.GrantID {
	if s := r.sets[key]; s != nil {
		return s.front.ID
	}
	return ""
}

// Bearer returns the grant for opening the next stream; without an ID if there
// is none.
func (r *Roster) Bearer() (Key, Grant) { return r.bearer.key, r.bearer.next() }

// RefuseBearer notes that no stream can be opened under a grant. It reports
// whether there is another one to try.
func (r *Roster) RefuseBearer(key Key, id protocol.GrantID, now time.Time) (another bool, effects []Effect) {
	if s := r.sets[key]; s != nil && (s.front.ID == id || s.members[id] != nil) {
		r.refuse(s, id)
		r.settle(s, now)
		r.choose()
	}
	_, next := r.Bearer()
	return next.ID != "" && next.ID != id, r.take()
}
