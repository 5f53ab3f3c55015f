package display

import (
	"bytes"
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// contextBytes is how much of what was printed before decides about what comes
// next when the first secret is set: enough for one of any usual length, with
// colours in between.
const contextBytes = 64 << 10

// can is the control that ends a sequence without an effect.
const can = 0x18

// masked takes what raw let out of the output of the program in front, and
// returns what the log gets of it, which may be in the same place. With end it is
// the last.
func (d *Display) masked(out []byte, end bool) []byte {
	if d.raw == nil || len(out) == 0 && !end {
		return out
	}
	s := d.front
	d.buf = s.stream.Write(append(d.buf[:0], s.loose...), out)
	s.loose = s.loose[:0]
	if d.same && !d.due && !end && !s.holdsBack() && bytes.Equal(d.buf, out) && !breaksOff(out) {
		return d.unmasked(out)
	}
	d.differs()
	if end {
		d.buf = s.stream.Flush(d.buf)
	}
	return d.show(out[:0], d.buf, end)
}

// breaksOff reports whether out ends amid a character, of which the screen of the
// log makes nothing before there is more.
func breaksOff(out []byte) bool {
	for i := len(out) - 1; i >= max(0, len(out)-utf8.UTFMax); i-- {
		if utf8.RuneStart(out[i]) {
			return !utf8.FullRune(out[i:])
		}
	}
	return false
}

// unmasked is masked for output of which nothing is masked nor held back. The
// screen of the log needn't parse it before somebody looks.
func (d *Display) unmasked(out []byte) []byte {
	d.behind = append(d.behind, out...)
	if len(d.behind) > d.mostBehind {
		d.grid, d.behind = d.raw.Fork(), d.behind[:0]
	}
	d.moved()
	if d.mustLook(d.raw.TakeTangled(), len(out)) {
		d.read = d.raw.AppendNewText(d.read[:0])
		if d.spans = d.set.Find(d.spans[:0], d.read); len(d.spans) > 0 {
			d.Mask(d.set)
			d.found++
			d.due = true
			return out[:0]
		}
	} else {
		d.raw.SkipNewText()
	}
	return out
}

// mustLook reports whether the screen, on which n bytes of output were drawn,
// tangled or not, may show a secret that the stream let pass.
func (d *Display) mustLook(tangled bool, n int) bool {
	switch {
	case tangled:
		d.watch = 2 * d.set.MaxBytes() // there is more than the secret
	case d.watch > 0 || d.again:
		d.watch -= n
	default:
		return false
	}
	d.again = d.front.holdsBack()
	return true
}

// show writes masked output to the screen of the log and appends to dst what
// the log gets. When that leaves a new epoch due, the log gets nothing: it is in
// the screen that the epoch begins with.
func (d *Display) show(dst, masked []byte, end bool) []byte {
	dst, _ = d.grid.Write(dst, nil, masked)
	if end {
		dst = d.grid.Flush(dst)
	}
	d.moved()
	if d.drawn(len(masked)) {
		d.found++
		d.due = true
	}
	if d.due {
		return dst[:0]
	}
	d.compare(len(masked))
	return dst
}

// compare looks whether both screens are the same again, if that wasn't looked at
// for long, n more bytes of output included.
func (d *Display) compare(n int) {
	if d.apart += n; d.apart < d.mostBehind/4 || d.front.holdsBack() || len(d.front.loose) > 0 {
		return
	}
	d.apart = -d.mostBehind                                     // unless they are, it may take long
	d.same = screen.Same(d.raw.Fork(), d.grid.(*screen.Screen)) // beside raw there is no other
}

// drawn masks a secret that the screen has come to show though the stream, which
// looks at the order of output, let it pass, and reports whether there was one.
// It looks at both screens: that of the log has asterisks for parts of it that
// are secrets themselves. n bytes of output were just shown.
func (d *Display) drawn(n int) bool {
	tangled, rawTangled := d.grid.TakeTangled(), d.raw.TakeTangled()
	if !d.mustLook(tangled || rawTangled, n) {
		d.grid.SkipNewText()
		d.raw.SkipNewText()
		return false
	}
	d.text, d.read = d.grid.AppendNewText(d.text[:0]), d.raw.AppendNewText(d.read[:0])
	found := false
	if d.spans = d.set.Find(d.spans[:0], d.text); len(d.spans) > 0 {
		d.Mask(d.set)
		found = true
	}
	if bytes.Equal(d.text, d.read) {
		return found
	}
	if d.spans = d.set.Find(d.spans[:0], d.read); len(d.spans) > 0 {
		if d.grid.MaskAsIn(d.raw, false, leaving(d.set)) > 0 {
			d.moved()
			found = true
		}
	}
	return found
}

// Mask masks the secrets of set in all that the screen holds, and reports
// whether there were any.
func (d *Display) Mask(set *redact.Set) bool {
	d.moved()
	if d.screen().Mask(finder(set)) == 0 {
		return false
	}
	d.differs()
	return true
}

// finder shows a screen where in its text the secrets of set are.
func finder(set *redact.Set) func(text []byte, mask func(from, to int)) {
	return func(text []byte, mask func(from, to int)) {
		for _, s := range set.Find(nil, text) {
			mask(s.From, s.To)
		}
	}
}

// leaving is finder, and tells of each secret how many characters of it a stream
// lets out when they come one by one: what it has let out is no find.
func leaving(set *redact.Set) func(text []byte, mask func(from, to, few int)) {
	return func(text []byte, mask func(from, to, few int)) {
		for _, s := range set.Find(nil, text) {
			mask(s.From, s.To, letOut(set, text[s.From:s.To]))
		}
	}
}

// letOut returns how many characters of secrets that stand one behind the other
// a stream lets out.
func letOut(set *redact.Set, secrets []byte) int {
	stream := set.NewStream()
	var out []byte
	for i := range secrets {
		out = stream.Write(out, secrets[i:i+1])
	}
	out = stream.Flush(out)
	return utf8.RuneCount(out) - bytes.Count(out, []byte{'*'})
}

// Use has the secrets of set masked in all that comes from now on, and what is
// on the screen or above it, with those of partial. It reports whether anything
// was masked there: then the log holds it, too.
func (d *Display) Use(set *redact.Set, partial ...*redact.Set) (found bool) {
	d.set = set
	if d.raw == nil && set.Empty() {
		return false
	}
	same := d.same
	if d.raw == nil {
		d.raw = d.grid.(*screen.Screen) // nothing else ever has secrets
		d.grid = d.raw.Fork()
		d.grid.TakeTangled()
		same = true
	}
	d.differs() // until it is known that they don't
	for i, s := range []*Feed{d.own, d.front} {
		switch {
		case i > 0 && s == d.own:
		case s.stream != nil:
			s.loose = s.stream.Use(s.loose, set)
		case s == d.front:
			s.stream = set.NewStreamAfter(d.transcript.Tail(contextBytes))
		default:
			s.stream = set.NewStream()
		}
	}
	let := d.front.loose
	d.front.loose = nil
	d.append(d.show(nil, let, false))
	d.raw.Tangle() // a secret may be half printed
	d.again = d.front.holdsBack()
	found = d.Mask(set)
	for _, v := range partial {
		found = d.Mask(v) || found
	}
	found = d.grid.MaskAsIn(d.raw, true, leaving(set)) > 0 || found
	d.same = same && !found && len(let) == 0 && !d.front.holdsBack()
	return found
}
