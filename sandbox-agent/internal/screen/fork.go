package screen

import (
	"maps"
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

func (b *buffer) clone() *buffer {
	c := *b
	c.ring, c.start = make([]row, len(b.ring)), 0
	for i := range b.count {
		r := b.at(i)
		c.ring[i] = row{cells: slices.Clone(r.cells), wrapped: r.wrapped, clusters: slices.Clone(r.clusters)}
	}
	return &c
}
