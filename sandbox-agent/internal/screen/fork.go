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

// Same reports whether what two screens show, hold and do next is the same. It may
// overlook that it is; it never says so of screens that differ.
func Same(s, t *Screen) bool {
	return (s.buf == s.alt) == (t.buf == t.alt) && s.normal.same(t.normal) && s.alt.same(t.alt) &&
		reflect.DeepEqual(bare(*s), bare(*t))
}

// bare returns c without its rows, what was noted for who looks at its text, and
// room that is used again.
func bare(c Screen) Screen {
	c.str, c.part, c.held = append([]byte{}, c.str...), append([]byte{}, c.part...), append([]byte{}, c.held...)
	c.normal, c.alt, c.buf, c.places, c.clusters.scratch = nil, nil, nil, nil, nil
	c.in, c.out, c.answers, c.joined, c.kept, c.maybeAt = nil, nil, nil, nil, 0, 0
	c.tangled, c.wasTangled, c.returned, c.newRows = false, false, false, 0
	return c
}

func (b *buffer) same(other *buffer) bool {
	x, y := *b, *other
	x.ring, x.start, x.scrolled, y.ring, y.start, y.scrolled = nil, 0, 0, nil, 0, 0
	same := reflect.DeepEqual(x, y)
	for i := 0; same && i < b.count; i++ {
		p, q := b.at(i), other.at(i)
		same = p.wrapped == q.wrapped && slices.Equal(p.cells, q.cells) && slices.Equal(p.clusters, q.clusters)
	}
	return same
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
