package redact

import (
	"slices"
	"unicode/utf8"
)

const (
	// maxDecoration bounds the bytes of sequences and controls held within the
	// beginning of a secret.
	maxDecoration = 64 << 10
	// maxPiece is how many bytes are processed at once.
	maxPiece = 64 << 10
	// minHistory is the least number of released bytes that a Stream keeps.
	minHistory = 4 << 10
	// joint stands where characters without width were taken out between bytes
	// that are no UTF-8, and would be together: a word joiner, which shows nothing.
	joint = "\u2060"
)

// A Stream masks the secrets of a Set in one stream of terminal output. It is
// not safe for concurrent use.
type Stream struct {
	set *Set // of which nothing else changes

	view     view
	base     int    // position of held in the input
	held     []byte // of the input
	skip     int    // bytes of held that are out: a character was cut there
	gap      bool   // what was last let out is followed by what was taken out, without an asterisk
	history  []byte // the newest bytes of the input that are out
	matched  uint64 // secrets that were found by views that are gone
	overruns uint64
	all      [4]*matcher // room for matchers
}

// NewStream returns a Stream at the beginning of its output.
func (s *Set) NewStream() *Stream { return &Stream{set: s} }

// NewStreamAfter returns a Stream that continues after context, which is out
// already. It masks the rest of a secret that began in context. More context
// than MaxBytes, plus the sequences in it, makes no difference.
func (s *Set) NewStreamAfter(context []byte) *Stream {
	r := s.NewStream()
	r.resume(context)
	return r
}

// resume continues a new stream after context.
func (r *Stream) resume(context []byte) {
	r.remember(context)
	if r.set.Empty() {
		return
	}
	for len(context) > 0 {
		n := min(len(context), maxPiece)
		r.held = append(r.held, context[:n]...)
		context = context[n:]
		r.look(r.held)
		to := r.view.at
		r.held = r.held[:copy(r.held, r.held[to-r.base:])]
		r.base = to
		r.released(to)
	}
	r.skip = len(r.held)
	for _, m := range r.matchers() {
		m.matches = 0
	}
}

// Use changes the set to s. It appends to dst the held bytes that may go out
// now. The rest of a secret of s that began in released bytes is masked, as far
// back as the stream keeps them: 4 KiB, or twice MaxBytes of the old set if
// that is more.
func (r *Stream) Use(dst []byte, s *Set) []byte {
	next := &Stream{set: s, overruns: r.overruns, gap: r.gap}
	next.resume(r.history)
	next.matched = r.Matches()
	held := r.held[r.skip:]
	*r = *next
	return r.Write(dst, held)
}

// Write takes output and appends to dst what may go out now.
func (r *Stream) Write(dst, p []byte) []byte {
	if r.set.Empty() {
		r.remember(p)
		return r.keep(dst, p)
	}
	for len(p) > 0 {
		n := min(len(p), maxPiece)
		dst = r.write(dst, p[:n])
		p = p[n:]
	}
	return dst
}

// write processes at most maxPiece bytes.
func (r *Stream) write(dst, p []byte) []byte {
	src := p
	if len(r.held) > 0 {
		r.held = append(r.held, p...)
		src = r.held
	}
	r.look(src)
	to := r.hold()
	if r.base+len(src)-to > r.set.MaxBytes()+maxDecoration {
		r.overruns++
		for _, m := range r.matchers() {
			m.cover(r.set.index, r.view.at)
		}
		to = r.hold()
	}
	dst = r.release(dst, src, to)
	r.held = append(r.held[:0], src[to-r.base:]...)
	r.base = to
	return dst
}

// look processes what is new in src, which begins at base.
func (r *Stream) look(src []byte) {
	v, x := &r.view, r.set.index
	v.look(x, src, r.base)
	if v.other == nil {
		return
	}
	v.other.look(x, src, r.base)
	if v.agree(v.other) {
		v.screen.matches += v.matches() - v.screen.matches - v.strings.matches
		v.other = nil
	}
}

// matchers returns the matchers of all views.
func (r *Stream) matchers() []*matcher { return r.view.all(r.all[:0]) }

// hold returns the position from which on bytes must be held.
func (r *Stream) hold() int {
	to := r.view.at
	for _, m := range r.matchers() {
		if at, ok := m.hold(r.set.index); ok {
			to = min(to, at)
		}
	}
	return to
}

// released records that everything before to is out.
func (r *Stream) released(to int) {
	for _, m := range r.matchers() {
		m.released(to)
	}
}

// release appends the input up to to, masked. src begins at base.
func (r *Stream) release(dst, src []byte, to int) []byte {
	out := src[:to-r.base]
	if len(out) == 0 {
		return dst
	}
	r.remember(out[r.skip:])
	from := r.base + r.skip
	r.skip = 0
	dst = r.mask(dst, src, from, to)
	r.released(to)
	return dst
}

// mask appends the input [from, to), masked. src begins at base.
func (r *Stream) mask(dst, src []byte, from, to int) []byte {
	if !r.masks() {
		return r.keep(dst, src[from-r.base:to-r.base])
	}
	var walks [4]hidden
	all := r.matchers()
	for i, m := range all {
		walks[i] = m.hidden()
	}
	for {
		s := &walks[0]
		for i := range all {
			if walks[i].From < s.From {
				s = &walks[i]
			}
		}
		if s.From >= to {
			break
		}
		part := Span{max(s.From, from), min(s.To, to)}
		s.next()
		if part.From >= part.To {
			continue
		}
		dst = r.keep(dst, src[from-r.base:part.From-r.base])
		shown := len(dst)
		dst = asterisks(dst, src[part.From-r.base:part.To-r.base])
		r.gap = len(dst) == shown
		from = part.To
	}
	return r.keep(dst, src[from-r.base:to-r.base])
}

// keep appends p unmasked. A byte of p that continues no character must not
// continue one that began before a gap.
func (r *Stream) keep(dst, p []byte) []byte {
	if len(p) == 0 {
		return dst
	}
	if r.gap && !utf8.RuneStart(p[0]) {
		dst = append(dst, joint...)
	}
	r.gap = false
	return append(dst, p...)
}

// asterisks appends one for each character of p that has a width. The others
// belong to the character before.
func asterisks(dst, p []byte) []byte {
	for i, c := range p {
		if c&0xc0 == 0x80 {
			continue
		}
		if c >= utf8.RuneSelf {
			if r, _ := utf8.DecodeRune(p[i:]); unseen(r) {
				continue
			}
		}
		dst = append(dst, '*')
	}
	return dst
}

// masks reports whether anything is to be masked.
func (r *Stream) masks() bool {
	for _, m := range r.matchers() {
		if len(m.masks) > 0 {
			return true
		}
	}
	return false
}

// remember keeps the newest released bytes.
func (r *Stream) remember(p []byte) {
	most := max(minHistory, 2*r.set.MaxBytes())
	if len(p) >= most {
		r.history = append(r.history[:0], p[len(p)-most:]...)
		return
	}
	if r.history = append(r.history, p...); len(r.history) > 2*most {
		r.history = slices.Delete(r.history, 0, len(r.history)-most)
	}
}

// Flush ends the output and appends what is held. It masks the beginning of a
// secret. A Write after it begins anew.
func (r *Stream) Flush(dst []byte) []byte {
	if !r.set.Empty() {
		end := r.base + len(r.held)
		r.finish(end)
		dst = r.release(dst, r.held, end)
	}
	*r = Stream{set: r.set, matched: r.Matches(), overruns: r.overruns}
	return dst
}

// finish ends the output at end and masks the beginning of a secret there.
func (r *Stream) finish(end int) {
	for _, m := range r.matchers() {
		m.settle(r.set.index)
		m.cover(r.set.index, r.view.at)
		m.end(r.set.index)
	}
	r.view.at = end
}

// Held returns how many bytes are held.
func (r *Stream) Held() int { return len(r.held) - r.skip }

// Matches returns how many secrets were masked. Overlapping ones count as one.
func (r *Stream) Matches() uint64 { return r.matched + r.view.matches() }

// Overruns returns how often the beginning of a secret was masked because it
// held too many sequences.
func (r *Stream) Overruns() uint64 { return r.overruns }
