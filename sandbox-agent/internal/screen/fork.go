package screen

import (
	"reflect"
	"slices"
)

// Clone returns a screen of its own that is equal to s in everything, what it
// holds back included.
func (s *Screen) Clone() *Screen {
	c := *s
	c.grid = s.grid.Clone()
	c.str, c.part, c.held = slices.Clone(s.str), slices.Clone(s.part), slices.Clone(s.held)
	c.in, c.out, c.answers, c.joined = nil, nil, nil, nil
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
	return s.grid.Same(t.grid) && reflect.DeepEqual(bare(*s), bare(*t))
}

// bare returns c without its grid and room that is used again.
func bare(c Screen) Screen {
	c.str, c.part, c.held = append([]byte{}, c.str...), append([]byte{}, c.part...), append([]byte{}, c.held...)
	c.grid, c.in, c.out, c.answers, c.joined, c.kept, c.maybeAt = nil, nil, nil, nil, nil, 0, 0
	return c
}
