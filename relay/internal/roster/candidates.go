package roster

import (
	"cmp"
	"container/heap"
)

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
