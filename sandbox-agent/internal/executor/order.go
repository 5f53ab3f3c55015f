package executor

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// maxWaiting bounds the commands that run or wait for their turn.
	maxWaiting = 256
	// maxOvertaking is how long a command that can't be verified yet, because
	// its key must be fetched, holds back those that arrived after it.
	maxOvertaking = 250 * time.Millisecond
)

// order keeps the commands of one terminal in the order of their arrival, and
// those of a whole session apart from all others of it. Different terminals
// don't wait for each other. Decisions about a session wait for each other and
// for its end alone: somebody's connection hangs until they have run.
type order struct {
	mu sync.Mutex
	// Guarded by mu.
	arrived  uint64                   // slots taken so far
	open     map[uint64]chan struct{} // slots not passed yet, by number; closed when passed
	waiting  int                      // turns that have not ended
	sessions map[protocol.SessionID]*sessionOrder
}

// sessionOrder is what runs or waits in one session.
type sessionOrder struct {
	turns     int                      // that have not ended
	whole     *turn                    // the last one for all of the session
	terminals map[protocol.PTYID]*turn // the last one of each
	makers    map[*turn]struct{}       // of terminals that have no name yet
	decision  *turn                    // the last one
	deletion  *turn                    // the last one of the session
}

// A slot is held from a command's arrival until it is known where it belongs.
type slot struct {
	order  *order
	number uint64
}

// arrive takes the next slot.
func (o *order) arrive() slot {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[uint64]chan struct{})
	}
	o.arrived++
	o.open[o.arrived] = make(chan struct{})
	return slot{o, o.arrived}
}

// pass lets those behind s go on.
func (s slot) pass() {
	s.order.mu.Lock()
	defer s.order.mu.Unlock()
	if passed := s.order.open[s.number]; passed != nil {
		close(passed)
		delete(s.order.open, s.number)
	}
}

// before returns the slots ahead of s that are not passed.
func (s slot) before() []chan struct{} {
	s.order.mu.Lock()
	defer s.order.mu.Unlock()
	var ahead []chan struct{}
	for number, passed := range s.order.open {
		if number < s.number {
			ahead = append(ahead, passed)
		}
	}
	return ahead
}

// A turn is the right to act on a terminal or session.
type turn struct {
	order   *order
	session protocol.SessionID
	pty     protocol.PTYID
	after   []*turn // nil once they have ended
	ended   chan struct{}
}

// enter gives the slot up for a turn, behind those of all that arrived before.
// It fails with KindTooMany when too many wait.
func (s slot) enter(lane op.Lane, target protocol.CommandTarget) (*turn, error) {
	for _, passed := range s.before() {
		<-passed
	}
	defer s.pass()
	o := s.order
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting >= maxWaiting {
		return nil, protocol.Errorf(protocol.KindTooMany, "over %d commands wait", maxWaiting)
	}
	o.waiting++
	t := &turn{order: o, ended: make(chan struct{})}
	if lane != op.LaneFree {
		t.session, t.pty = target.SessionID, target.PTYID
		o.line(t, lane)
	}
	return t, nil
}

// line puts t behind those it must wait for. Called with mu held.
func (o *order) line(t *turn, lane op.Lane) {
	if o.sessions == nil {
		o.sessions = make(map[protocol.SessionID]*sessionOrder)
	}
	s := o.sessions[t.session]
	if s == nil {
		s = &sessionOrder{terminals: make(map[protocol.PTYID]*turn), makers: make(map[*turn]struct{})}
		o.sessions[t.session] = s
	}
	s.turns++
	if lane == op.LaneDecision {
		t.behind(s.deletion, s.decision)
		s.decision = t
		return
	}
	t.behind(s.whole)
	switch {
	case lane == op.LaneSession, lane == op.LaneEnd, lane == op.LaneScope && t.pty == "":
		for _, of := range s.terminals {
			t.behind(of)
		}
		for of := range s.makers {
			t.behind(of)
		}
		if lane == op.LaneEnd {
			t.behind(s.decision)
			s.deletion = t
		}
		s.whole = t
		clear(s.terminals)
		clear(s.makers)
	case t.pty == "":
		s.makers[t] = struct{}{}
	default:
		t.behind(s.terminals[t.pty])
		s.terminals[t.pty] = t
	}
}

// behind has t wait for others; nil is none.
func (t *turn) behind(others ...*turn) {
	for _, of := range others {
		if of != nil {
			t.after = append(t.after, of)
		}
	}
}

// wait returns when t's turn has come.
func (t *turn) wait() {
	for _, before := range t.after {
		<-before.ended
	}
	t.after = nil
}

// end gives the turn back. It is called after wait.
func (t *turn) end() {
	close(t.ended)
	o := t.order
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting--
	s := o.sessions[t.session]
	if s == nil || t.session == "" {
		return
	}
	s.turns--
	if s.whole == t {
		s.whole = nil
	}
	if s.decision == t {
		s.decision = nil
	}
	if s.deletion == t {
		s.deletion = nil
	}
	if s.terminals[t.pty] == t {
		delete(s.terminals, t.pty)
	}
	delete(s.makers, t)
	if s.turns == 0 {
		delete(o.sessions, t.session)
	}
}
