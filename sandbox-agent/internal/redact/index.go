package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// An index holds the forms of all secrets, sorted, and by their first HoldFrom
// bytes. It is static after construction.
type index struct {
	arena    []byte
	patterns []pattern
	parent   []int32 // the longest other pattern that this one begins with, or -1
	longest  int     // bytes
	hold     []uint8 // the least one of each holdBlock patterns

	// filter has a bit for each pattern's first HoldFrom bytes; slots has the
	// patterns that begin with them. The top bits of a product index both.
	filter      []uint64
	filterShift uint
	tails       []uint64 // like filter, for the last HoldFrom bytes
	slots       []slot
	slotShift   uint
	wideHeads   bool // some begin with HoldFrom bytes that are not all ASCII
}

// A pattern lies in the arena.
type pattern struct {
	offset, length uint32
	hold           uint8 // this many bytes of it are held, at least HoldFrom
}

// holdBlock is the number of patterns that share a least hold.
const holdBlock = 64

// A slot holds the patterns [lo, hi) that begin with key; empty if hi is 0.
type slot struct{ key, lo, hi uint32 }

const (
	filterFactor = 0x9e3779b1
	slotFactor   = 0x85ebca77
)

// newIndex sorts the patterns, which lie one after the other in arena.
func newIndex(arena []byte, patterns []pattern) *index {
	type keyed struct {
		key uint64
		pattern
	}
	sorted := make([]keyed, len(patterns))
	for i, p := range patterns {
		sorted[i] = keyed{binary.BigEndian.Uint64(arena[p.offset:]), p}
	}
	rest := func(p pattern) []byte { return arena[p.offset+8 : p.offset+p.length] }
	slices.SortFunc(sorted, func(a, b keyed) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return bytes.Compare(rest(a.pattern), rest(b.pattern))
	})
	x := &index{arena: arena, patterns: patterns[:0]}
	for i, p := range sorted {
		if i == 0 || p.key != sorted[i-1].key || !bytes.Equal(rest(p.pattern), rest(sorted[i-1].pattern)) {
			x.patterns = append(x.patterns, p.pattern)
			x.longest = max(x.longest, int(p.length))
		}
		last := &x.patterns[len(x.patterns)-1]
		last.hold = min(last.hold, p.hold)
	}
	for block := range slices.Chunk(x.patterns, holdBlock) {
		x.hold = append(x.hold, leastHold(block))
	}
	x.link()
	x.hash()
	return x
}

// link sets parent.
func (x *index) link() {
	x.parent = make([]int32, len(x.patterns))
	last := int32(-1)
	for i := range x.patterns {
		for last >= 0 && !bytes.HasPrefix(x.at(i), x.at(int(last))) {
			last = x.parent[last]
		}
		x.parent[i] = last
		last = int32(i)
	}
}

// hash fills filter and slots.
func (x *index) hash() {
	var keys []slot
	for i := range x.patterns {
		key := binary.BigEndian.Uint32(x.at(i))
		if n := len(keys); n > 0 && keys[n-1].key == key {
			keys[n-1].hi++
		} else {
			keys = append(keys, slot{key, uint32(i), uint32(i) + 1})
		}
	}
	size := bits.Len(uint(len(keys)))
	x.slotShift = 32 - uint(size+1)
	x.slots = make([]slot, 1<<(size+1))
	// With 32 bits for each key, one window in 32 passes falsely.
	x.filterShift = 32 - uint(max(size+5, 10))
	x.filter = make([]uint64, 1<<(32-x.filterShift-6))
	x.tails = make([]uint64, len(x.filter))
	for i := range x.patterns {
		p := x.at(i)
		h := binary.BigEndian.Uint32(p[len(p)-HoldFrom:]) * filterFactor >> x.filterShift
		x.tails[h>>6] |= 1 << (h & 63)
	}
	for _, k := range keys {
		x.wideHeads = x.wideHeads || k.key&0x80808080 != 0
		h := k.key * filterFactor >> x.filterShift
		x.filter[h>>6] |= 1 << (h & 63)
		i := k.key * slotFactor >> x.slotShift
		for x.slots[i].hi != 0 {
			i = (i + 1) & uint32(len(x.slots)-1)
		}
		x.slots[i] = k
	}
}

// at returns pattern i.
func (x *index) at(i int) []byte {
	p := x.patterns[i]
	return x.arena[p.offset : p.offset+p.length]
}

// leastHold returns the least hold of the patterns.
func leastHold(patterns []pattern) uint8 {
	least := patterns[0].hold
	for _, p := range patterns[1:] {
		least = min(least, p.hold)
	}
	return least
}

// holds reports whether one of the patterns [lo, hi) is held once depth bytes
// of it are there.
func (x *index) holds(lo, hi, depth int) bool {
	for lo < hi {
		n := min(hi, lo+holdBlock) - lo
		if whole := lo%holdBlock == 0 && n == holdBlock; whole {
			if int(x.hold[lo/holdBlock]) <= depth {
				return true
			}
		} else {
			n = min(n, holdBlock-lo%holdBlock)
			if int(leastHold(x.patterns[lo:lo+n])) <= depth {
				return true
			}
		}
		lo += n
	}
	return false
}

// size returns the length of a pattern.
func (x *index) size(i int) int { return int(x.patterns[i].length) }

// may reports whether patterns may begin with the window.
func (x *index) may(window uint32) bool {
	h := window * filterFactor >> x.filterShift
	return x.filter[h>>6]>>(h&63)&1 != 0
}

// mayEnd reports whether a pattern may end with t.
func (x *index) mayEnd(t []byte) bool {
	h := binary.BigEndian.Uint32(t[len(t)-HoldFrom:]) * filterFactor >> x.filterShift
	return x.tails[h>>6]>>(h&63)&1 != 0
}

// begin returns the patterns [lo, hi) that begin with the window.
func (x *index) begin(window uint32) (lo, hi int) {
	for i := window * slotFactor >> x.slotShift; ; i = (i + 1) & uint32(len(x.slots)-1) {
		s := x.slots[i]
		if s.hi == 0 || s.key == window {
			return int(s.lo), int(s.hi)
		}
	}
}

// narrow returns those of the patterns [lo, hi), whose first depth bytes are
// equal, that continue with c.
func (x *index) narrow(lo, hi, depth int, c byte) (int, int) {
	if x.size(lo) == depth {
		lo++
	}
	if lo >= hi {
		return 0, 0
	}
	next := func(i int) byte { return x.arena[int(x.patterns[i].offset)+depth] }
	first, last := next(lo), next(hi-1)
	if first == c && last == c {
		return lo, hi
	}
	if c < first || c > last {
		return 0, 0
	}
	if first != c {
		l, r := lo, hi-1 // next(l) < c <= next(r)
		for r-l > 1 {
			if m := int(uint(l+r) >> 1); next(m) < c {
				l = m
			} else {
				r = m
			}
		}
		lo = r
	}
	if last != c {
		l, r := lo, hi-1 // next(r) > c
		if next(l) != c {
			return 0, 0
		}
		for r-l > 1 {
			if m := int(uint(l+r) >> 1); next(m) > c {
				r = m
			} else {
				l = m
			}
		}
		hi = r
	}
	return lo, hi
}

// find returns the patterns [lo, hi) that begin with t and the length of the
// longest one that t begins with, or 0.
func (x *index) find(t []byte) (lo, hi, whole int) {
	from, to := 0, len(x.patterns)
	if len(t) >= HoldFrom {
		if from, to = x.begin(binary.BigEndian.Uint32(t)); to == 0 {
			return 0, 0, 0
		}
	}
	lo, common := x.lowerBound(from, to, t)
	if lo < to && bytes.HasPrefix(x.at(lo), t) {
		hi = x.upperBound(lo, to, t)
		return lo, hi, x.wholeAt(lo, len(t))
	}
	if lo == from || common < MinSecretBytes {
		return 0, 0, 0
	}
	q, _ := x.lowerBound(from, lo, t[:common])
	return 0, 0, x.wholeAt(q, common)
}

// wholeAt returns the length of the longest pattern that is a beginning of the
// first n bytes of pattern i, which is the first with these.
func (x *index) wholeAt(i, n int) int {
	if x.size(i) == n {
		return n
	}
	if p := x.parent[i]; p >= 0 {
		return x.size(int(p))
	}
	return 0
}

// lowerBound returns the first of the patterns [lo, hi) not less than t, and
// how many bytes t shares with the one before.
func (x *index) lowerBound(lo, hi int, t []byte) (i, common int) {
	if lo == hi {
		return lo, 0
	}
	// The prefix of many patterns is mostly decided by the first and the last.
	right, less := order(x.at(lo), t, 0) // bytes in common with hi
	if !less {
		return lo, 0
	}
	left := right // bytes in common with lo-1
	if lo++; lo == hi {
		return lo, left
	}
	if right, less = order(x.at(hi-1), t, 0); less {
		return hi, right
	}
	hi--
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		p := x.at(m)
		n, less := order(p, t, min(left, right))
		if less {
			lo, left = m+1, n
		} else {
			hi, right = m, n
		}
	}
	return lo, left
}

// order returns how many bytes p and t have in common, which is at least n, and
// whether p is less than t.
func order(p, t []byte, n int) (int, bool) {
	n += shared(p[n:], t[n:])
	return n, n < len(t) && (n == len(p) || p[n] < t[n])
}

// upperBound returns the first of the patterns (lo, hi) that doesn't begin with
// t, or hi. Pattern lo does.
func (x *index) upperBound(lo, hi int, t []byte) int {
	if bytes.HasPrefix(x.at(hi-1), t) {
		return hi
	}
	for step := 1; ; step *= 2 {
		if lo+step >= hi {
			break
		}
		if !bytes.HasPrefix(x.at(lo+step), t) {
			hi = lo + step
			break
		}
		lo += step
	}
	for hi-lo > 1 {
		if m := int(uint(lo+hi) >> 1); bytes.HasPrefix(x.at(m), t) {
			lo = m
		} else {
			hi = m
		}
	}
	return hi
}

// shared returns how many bytes a and b have in common at their beginning.
func shared(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	if n > 64 && bytes.Equal(a[:n], b[:n]) {
		return n
	}
	for ; i+8 <= n; i += 8 {
		if d := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); d != 0 {
			return i + bits.TrailingZeros64(d)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
