package screen

import (
	"maps"
	"reflect"
	"slices"
)

// Clone returns a screen of its own that is equal to s in everything, what it
// holds back included.
func (s *Screen) Clone() *Screen {
	c := *s
	c.normal, c.alt = s.normal.clone(), s.alt.clone()
	c.buf = c.normal
	if s.buf == s.alt {
		c.buf = c.alt
	}
	c.links.list, c.links.free = slices.Clone(s.links.list), slices.Clone(s.links.free)
	c.links.number = maps.Clone(s.links.number)
	c.exts.list, c.exts.free = slices.Clone(s.exts.list), slices.Clone(s.exts.free)
	c.exts.number = maps.Clone(s.exts.number)
	c.clusters.text, c.clusters.free = slices.Clone(s.clusters.text), slices.Clone(s.clusters.free)
	c.clusters.number, c.clusters.scratch = maps.Clone(s.clusters.number), nil
	c.str, c.part, c.held = slices.Clone(s.str), slices.Clone(s.part), slices.Clone(s.held)
	c.in, c.out, c.answers, c.joined, c.places = nil, nil, nil, nil, nil
	return &c
}

// Fork returns a screen of its own for those who follow s: it is what a new one
// would be that had been written all that s has let out. Of what s holds back
// it knows nothing.
func (s *Screen) Fork() *Screen {
	c := s.Clone()
	c.part, c.held = c.part[:0], c.held[:0]
	if !c.maybe {
		return c
	}
	c.maybe, c.closing, c.broken, c.maybeSize = c.escaped, false, false, 0
	c.state = ground
	if c.escaped { // the ESC has been let out
		c.begin(escape)
	}
	return c
}

// Same reports whether what s shows, holds and does next is the same as of other.
// It may overlook that it is; it never says so of screens that differ.
func (s *Screen) Same(other *Screen) bool {
	return (s.buf == s.alt) == (other.buf == other.alt) &&
		s.normal.same(other.normal) && s.alt.same(other.alt) && reflect.DeepEqual(s.bare(), other.bare())
}

// bare returns s without its rows, what was noted for who looks at its text, and
// room that is used again.
func (s *Screen) bare() Screen {
	c := *s
	c.normal, c.alt, c.buf = nil, nil, nil
	c.tangled, c.wasTangled, c.returned, c.newRows, c.places = false, false, false, 0, nil
	c.in, c.out, c.answers, c.joined, c.clusters.scratch = nil, nil, nil, nil, nil
	c.kept, c.maybeAt = 0, 0
	for _, p := range []*[]byte{&c.str, &c.part, &c.held} {
		if len(*p) == 0 {
			*p = nil
		}
	}
	return c
}

func (b *buffer) same(other *buffer) bool {
	x, y := *b, *other
	x.ring, x.start, x.scrolled, y.ring, y.start, y.scrolled = nil, 0, 0, nil, 0, 0
	if !reflect.DeepEqual(x, y) {
		return false
	}
	for i := range b.count {
		p, q := b.at(i), other.at(i)
		if p.wrapped != q.wrapped || !slices.Equal(p.cells, q.cells) || !slices.Equal(p.clusters, q.clusters) {
			return false
		}
	}
	return true
}

func (b *buffer) clone() *buffer {
	c := *b
	c.ring, c.start = make([]row, len(b.ring)), 0
	for i := range b.count {
		r := b.at(i)
		c.ring[i] = row{cells: slices.Clone(r.cells), wrapped: r.wrapped, clusters: slices.Clone(r.clusters)}
	}
	return &c
}
