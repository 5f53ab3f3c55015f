package redact

import "slices"

// hidden iterates over the parts of a matcher's text to mask: the segments
// within masks.
type hidden struct {
	Span
	segments, masks []Span
}

// beyond is a position after every input.
const beyond = int(^uint(0) >> 1)

func (m *matcher) hidden() hidden {
	h := hidden{segments: m.segments, masks: m.masks}
	h.next()
	return h
}

// next goes to the next part, or beyond the end.
func (h *hidden) next() {
	for len(h.segments) > 0 && len(h.masks) > 0 {
		s, m := h.segments[0], h.masks[0]
		h.Span = Span{max(s.From, m.From), min(s.To, m.To)}
		if s.To <= m.To {
			h.segments = h.segments[1:]
		} else {
			h.masks = h.masks[1:]
		}
		if h.From < h.To {
			return
		}
	}
	h.Span = Span{beyond, beyond}
}

// Mask returns p with every secret masked, as a Stream with output p masks it.
// It returns p itself if there is nothing to mask. The result is as long as p
// if the secrets in it are ASCII. Mask also masks the beginning of a secret at
// the end of p, because the text may have been cut there.
func (s *Set) Mask(p []byte) []byte {
	if s.Empty() {
		return p
	}
	var dst []byte
	r, done := s.NewStream(), 0
	r.search(p, func(to int) bool {
		if to == len(p) {
			r.finish(to)
		} else {
			to = r.hold()
		}
		if dst != nil || r.masks() {
			if dst == nil {
				dst = append(make([]byte, 0, len(p)), p[:done]...)
			}
			dst = r.mask(dst, p, done, to)
		}
		done = to
		r.released(to)
		return true
	})
	if dst == nil {
		return p
	}
	return dst
}

// MatchesIn reports whether p holds a secret.
func (s *Set) MatchesIn(p []byte) bool {
	if s.Empty() {
		return false
	}
	r := s.NewStream()
	r.search(p, func(to int) bool {
		if to == len(p) {
			r.close()
		}
		r.released(to)
		return r.Matches() == 0
	})
	return r.Matches() > 0
}

// Find appends the positions of secrets in text to dst, in order. Secrets that
// overlap or touch are one Span.
func (s *Set) Find(dst []Span, text []byte) []Span {
	if s.Empty() {
		return dst
	}
	r, n := s.NewStream(), len(dst)
	r.search(text, func(to int) bool {
		if to == len(text) {
			r.close()
		}
		return true
	})
	for _, m := range r.matchers() {
		dst = append(dst, m.masks...)
	}
	found := dst[n:]
	if len(found) == 0 {
		return dst
	}
	slices.SortFunc(found, func(a, b Span) int { return a.From - b.From })
	last := n
	for _, f := range found[1:] {
		if f.From <= dst[last].To {
			dst[last].To = max(dst[last].To, f.To)
		} else {
			last++
			dst[last] = f
		}
	}
	return dst[:last+1]
}

// search looks at all of p. After each piece, which ends at to, it calls then.
// It stops when then returns false.
func (r *Stream) search(p []byte, then func(to int) bool) {
	for to := 0; to < len(p); {
		to = min(len(p), to+maxPiece)
		r.look(p[:to])
		if !then(to) {
			return
		}
	}
}

// close ends the output: the beginning of a secret is no secret.
func (r *Stream) close() {
	for _, m := range r.matchers() {
		m.end(r.set.index)
	}
}
