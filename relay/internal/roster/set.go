package roster

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A set is a person's grants with the same rights.
type set struct {
	key     Key
	number  uint64 // in order of creation
	members map[protocol.GrantID]*member
	front   Grant     // represents the set, or did on the last stream; no ID: none yet
	live    bool      // front was accepted on this stream and hasn't ended since
	seen    bool      // admitted on this stream or an earlier one
	asking  *question // nil: no open question
	queued  bool      // it is in the queue
	until   time.Time // it is given up if there is no answer by then; zero: no wait

	// As a candidate; set by rank.
	place int   // in the heap, from 1; 0: it isn't one
	ends  int64 // when the grant ends with which it would open a stream
}

// A member is a grant with the number of its viewers.
type member struct {
	Grant
	viewers int
}

// A question is a grant that the admitter was asked about.
type question struct {
	handle Handle
	set    *set // nil: the answer no longer matters
	grant  Grant
}

func (q *question) bytes() int { return len(q.grant.Token) + askOverhead }

// settled reports whether there is nothing to ask about s.
func (s *set) settled() bool { return s.live && s.members[s.front.ID] != nil }

// next returns the grant to ask about for s: the representing one if it still
// has viewers, otherwise the one that expires last.
func (s *set) next() Grant {
	if s.members[s.front.ID] != nil || len(s.members) == 0 {
		return s.front
	}
	var best Grant
	for _, m := range s.members {
		if best.ID == "" || cmp.Or(cmp.Compare(m.Ends, best.Ends), cmp.Compare(best.ID, m.ID)) > 0 {
			best = m.Grant
		}
	}
	return best
}

// set returns the set of key and makes it if necessary.
func (r *Roster) set(key Key) *set {
	s := r.sets[key]
	if s == nil {
		r.count++
		s = &set{key: key, number: r.count, members: map[protocol.GrantID]*member{}}
		r.sets[key] = s
	}
	return s
}

// settle asks about s if necessary, and removes it if it has no members.
func (r *Roster) settle(s *set, now time.Time) {
	r.rank(s)
	switch {
	case len(s.members) == 0:
		r.vacate(s)
		return
	case !r.open:
		if len(r.bearer.members) == 0 {
			r.choose()
		}
		return
	case s.settled():
		r.withdraw(s)
		s.until = time.Time{}
		return
	case s.asking != nil && s.members[s.asking.grant.ID] != nil:
		return
	}
	r.withdraw(s)
	if !s.live && r.bearer == s {
		r.choose()
	}
	if s.until.IsZero() {
		s.until = now.Add(r.wait)
		r.expect(s.until)
	}
	if !s.queued {
		s.queued = true
		r.queue = append(r.queue, s)
		r.pump()
	}
}

// vacate removes the empty s, unless it has the only grant for a stream.
func (r *Roster) vacate(s *set) {
	r.withdraw(s)
	s.until = time.Time{}
	if r.bearer == s {
		r.choose() // removes s if there is another
		return
	}
	r.remove(s)
}

func (r *Roster) remove(s *set) {
	if r.sets[s.key] != s {
		return
	}
	delete(r.sets, s.key)
	r.rank(s)
	if s.front.ID != "" {
		r.emit(Forget{s.front.ID})
	}
}

// withdraw cancels the question about s.
func (r *Roster) withdraw(s *set) {
	if q := s.asking; q != nil {
		q.set, s.asking = nil, nil
		if q.grant.ID != s.front.ID || !s.live {
			r.emit(Forget{q.grant.ID})
		}
	}
}

// taken makes the accepted g represent s.
func (r *Roster) taken(s *set, g Grant) {
	old := s.front
	s.front, s.live, s.seen, s.until = g, true, true, time.Time{}
	r.rank(s)
	if old.ID != "" && old.ID != g.ID {
		r.emit(Succeed{old.ID, g.ID})
		r.emit(Forget{old.ID})
	}
	r.emit(Admit{s.key})
	b := r.bearer
	if b == s || b.live && len(b.members) > 0 && b.front.Ends >= g.Ends {
		return
	}
	r.bear(s)
}

// refuse removes a grant that was refused or has ended.
func (r *Roster) refuse(s *set, id protocol.GrantID) {
	delete(s.members, id)
	if s.front.ID == id {
		s.front, s.live = Grant{}, false
	}
	r.rank(s)
	r.emit(Refuse{s.key, id})
}

// bear makes s the set whose grant opens the next stream.
func (r *Roster) bear(s *set) {
	old := r.bearer
	r.bearer = s
	if old != s && len(old.members) == 0 {
		r.remove(old)
	}
}

// choose makes the best candidate the bearer. If there is none, the bearer stays.
func (r *Roster) choose() {
	if len(r.candidates) > 0 {
		r.bear(r.candidates[0])
	}
}

// pump asks about queued sets, best first, as far as the window allows.
func (r *Roster) pump() {
	for !r.held && len(r.queue) > 0 && (len(r.asks) == 0 || r.bytes+len(r.queue[0].next().Token)+askOverhead <= Window) {
		r.askNext()
	}
}

// askNext asks about the first set of the queue, if still necessary.
func (r *Roster) askNext() {
	s := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	s.queued = false
	if r.sets[s.key] != s || len(s.members) == 0 || s.settled() || s.asking != nil {
		return
	}
	r.last++
	q := &question{handle: r.last, set: s, grant: s.next()}
	s.asking = q
	r.asks = append(r.asks, q)
	r.bytes += q.bytes()
	r.emit(Ask{q.handle, q.grant.Token})
}

// expect notes that a wait ends at due.
func (r *Roster) expect(due time.Time) {
	if r.due.IsZero() || due.Before(r.due) {
		r.due = due
	}
}

// candidates are the sets of which one may open the next stream: those with
// viewers, and with a stream only those that were accepted on it. It is a heap, the
// best one first, so that who comes or goes needn't be compared with all others.
type candidates []*set

// rank notes what has changed about s as a candidate. It follows each change of its
// members, front, live or seen.
func (r *Roster) rank(s *set) {
	could := r.sets[s.key] == s && len(s.members) > 0 && (s.live || !r.open)
	if could {
		s.ends = s.next().Ends
	}
	switch at := s.place - 1; {
	case could && at < 0:
		heap.Push(&r.candidates, s)
	case could:
		heap.Fix(&r.candidates, at)
	case at >= 0:
		heap.Remove(&r.candidates, at)
	}
}

// rankAll is rank for all sets, as a stream was opened or lost.
func (r *Roster) rankAll() {
	for _, s := range r.candidates {
		s.place = 0
	}
	clear(r.candidates)
	r.candidates = r.candidates[:0]
	for _, s := range r.sets {
		r.rank(s)
	}
}

// better orders s before other if it should rather open the next stream: if it was
// admitted before, then if it ends later.
func (s *set) better(other *set) bool {
	return cmp.Or(before(s.seen, other.seen), -cmp.Compare(s.ends, other.ends), cmp.Compare(s.number, other.number)) < 0
}

// Len implements heap.Interface.
func (c candidates) Len() int { return len(c) }

// Less implements heap.Interface.
func (c candidates) Less(i, j int) bool { return c[i].better(c[j]) }

// Swap implements heap.Interface.
func (c candidates) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].place, c[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (c *candidates) Push(x any) {
	s := x.(*set)
	*c = append(*c, s)
	s.place = len(*c)
}

// Pop implements heap.Interface.
func (c *candidates) Pop() any {
	last := len(*c) - 1
	s := (*c)[last]
	(*c)[last] = nil
	*c = (*c)[:last]
	s.place = 0
	return s
}
