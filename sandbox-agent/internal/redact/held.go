package redact

import (
	"encoding/binary"
	"slices"
	"sort"
)

// mask records a secret in [from, to). Overlapping secrets count as one.
func (m *matcher) mask(from, to int) {
	if from >= m.countedTo {
		m.matches++
	}
	m.countedTo = max(m.countedTo, to)
	m.hide(from, to)
}

// hide records that [from, to) is to be masked.
func (m *matcher) hide(from, to int) {
	i := len(m.masks)
	for i > 0 && m.masks[i-1].From > to {
		i--
	}
	j := i
	for i > 0 && m.masks[i-1].To >= from {
		i--
		from, to = min(from, m.masks[i].From), max(to, m.masks[i].To)
	}
	m.masks = slices.Replace(m.masks, i, j, Span{from, to})
}

// holds reports whether what is followed is held: it is long enough, and part
// of it is not out.
func (m *matcher) holds(x *index) bool {
	return m.to > m.outTo && x.holds(m.lo, m.hi, m.depth)
}

// hold returns the first held byte's position; ok is false if none is held.
func (m *matcher) hold(x *index) (at int, ok bool) {
	switch {
	case m.depth == 0:
		return 0, false
	case m.stray.n > 0:
		if !m.stray.held {
			return 0, false
		}
		at = max(m.stray.from, m.outTo)
	case m.holds(x):
		at = max(m.where[m.head], m.outTo)
	default:
		return 0, false
	}
	i := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].To > at })
	if i < len(m.segments) {
		at = max(at, m.segments[i].From)
	}
	return at, true
}

// released records that everything before at is out.
func (m *matcher) released(at int) {
	m.outTo = max(m.outTo, at)
	n := 0
	for n < len(m.segments) && m.segments[n].To <= at {
		n++
	}
	m.segments = slices.Delete(m.segments, 0, n)
	n = 0
	for n < len(m.masks) && m.masks[n].To <= at {
		n++
	}
	m.masks = slices.Delete(m.masks, 0, n)
}

// cover masks what is held, up to to.
func (m *matcher) cover(x *index, to int) {
	if at, ok := m.hold(x); ok {
		m.hide(at, to)
		m.outTo = max(m.outTo, to)
	}
}

// end ends the text: the followed beginning is no secret.
func (m *matcher) end(x *index) {
	m.settle(x)
	if m.depth > 0 {
		t, where := m.run[m.head:], m.where[m.head:]
		for k := 1; k+HoldFrom <= len(t); k++ {
			if !x.may(binary.BigEndian.Uint32(t[k:])) {
				continue
			}
			if _, _, whole := x.find(t[k:]); whole > 0 {
				m.mask(where[k], where[k+whole-1]+1)
			}
		}
		m.drop()
	}
	m.window, m.edge, m.gap, m.indented = 0, noEdge, 0, false
}
