package roster

import (
	"cmp"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A set is a person's grants with the same rights.
type set struct {
	key     Key
	number  uint64 // in the order of their coming
	members map[protocol.GrantID]*member
	front   Grant     // stands for the set, or did on the last stream; no ID: none yet
	live    bool      // front was taken on this stream, and is good as far as we know
	seen    bool      // the set was admitted, on this stream or an earlier one
	asking  *question // nil: nobody is asked about
	queued  bool      // it is in the queue
	until   time.Time // without an answer by then it is given up; zero: it needs none
}

// A member is a grant, and how many viewers have it.
type member struct {
	Grant
	viewers int
}

// A question is a grant that somebody was asked about.
type question struct {
	handle Handle
	set    *set // nil: the answer doesn't matter any more
	grant  Grant
}

func (q *question) bytes() int { return len(q.grant.Token) + askOverhead }

// settled reports whether nobody has to be asked about s.
func (s *set) settled() bool { return s.live && s.members[s.front.ID] != nil }

// next returns the grant by which s is to be asked about: the one that stands
// for it if somebody still has it, else the one that ends last.
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

// set returns the set of key, a new one if there is none.
func (r *Roster) set(key Key) *set {
	s := r.sets[key]
	if s == nil {
		r.count++
		s = &set{key: key, number: r.count, members: map[protocol.GrantID]*member{}}
		r.sets[key] = s
	}
	return s
}

// settle has s asked about if it must be, and forgets it if nobody is in it.
func (r *Roster) settle(s *set, now time.Time) {
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

// vacate forgets s, in which nobody is, unless it has the only grant for a
// stream.
func (r *Roster) vacate(s *set) {
	r.withdraw(s)
	s.until = time.Time{}
	if r.bearer == s {
		r.choose() // which removes s if there is another
		return
	}
	r.remove(s)
}

func (r *Roster) remove(s *set) {
	if r.sets[s.key] != s {
		return
	}
	delete(r.sets, s.key)
	if s.front.ID != "" {
		r.emit(Forget{s.front.ID})
	}
}

// withdraw takes back what is asked about s.
func (r *Roster) withdraw(s *set) {
	if q := s.asking; q != nil {
		q.set, s.asking = nil, nil
		if q.grant.ID != s.front.ID || !s.live {
			r.emit(Forget{q.grant.ID})
		}
	}
}

// taken makes g, which was taken, stand for s.
func (r *Roster) taken(s *set, g Grant) {
	old := s.front
	s.front, s.live, s.seen, s.until = g, true, true, time.Time{}
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

// refuse drops a grant that isn't taken, or not any more.
func (r *Roster) refuse(s *set, id protocol.GrantID) {
	delete(s.members, id)
	if s.front.ID == id {
		s.front, s.live = Grant{}, false
	}
	r.emit(Refuse{s.key, id})
}

// bear makes s the one whose grant opens the next stream.
func (r *Roster) bear(s *set) {
	old := r.bearer
	r.bearer = s
	if old != s && len(old.members) == 0 {
		r.remove(old)
	}
}

// choose looks for the best bearer among those with viewers: while there is a
// stream one that was taken there, else rather one that was taken before. It
// stays as it is if there is none.
func (r *Roster) choose() {
	var best *set
	for _, s := range r.sets {
		if len(s.members) == 0 || r.open && !s.live {
			continue
		}
		if best == nil || cmp.Or(before(s.seen, best.seen), -cmp.Compare(s.next().Ends, best.next().Ends), cmp.Compare(s.number, best.number)) < 0 {
			best = s
		}
	}
	if best != nil {
		r.bear(best)
	}
}

// pump asks about sets, best first, as far as the window allows.
func (r *Roster) pump() {
	for !r.held && len(r.queue) > 0 && (len(r.asks) == 0 || r.bytes+len(r.queue[0].next().Token)+askOverhead <= Window) {
		r.askNext()
	}
}

// askNext asks about the first of the queue, if that still needs it.
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

// expect notes that somebody's time is over at due.
func (r *Roster) expect(due time.Time) {
	if r.due.IsZero() || due.Before(r.due) {
		r.due = due
	}
}
