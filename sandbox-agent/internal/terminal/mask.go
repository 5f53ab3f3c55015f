package terminal

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
// the last. The caller holds mu.
func (d *display) masked(out []byte, end bool) []byte {
	if d.raw == nil || len(out) == 0 && !end {
		return out
	}
	s := d.front
	d.buf = s.stream.Write(append(d.buf[:0], s.loose...), out)
	s.loose = s.loose[:0]
	if end {
		d.buf = s.stream.Flush(d.buf)
	}
	return d.show(out[:0], d.buf, end)
}

// show writes masked output to the screen of the log and appends to dst what
// the log gets. When that leaves a new epoch due, the log gets nothing: it is in
// the screen that the epoch begins with. The caller holds mu.
func (d *display) show(dst, masked []byte, end bool) []byte {
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
	return dst
}

// drawn masks a secret that the screen has come to show though the stream, which
// looks at the order of output, let it pass, and reports whether there was one.
// It looks at both screens: that of the log has asterisks for parts of it that
// are secrets themselves. The caller holds mu, after n bytes of output.
func (d *display) drawn(n int) bool {
	tangled, rawTangled := d.grid.TakeTangled(), d.raw.TakeTangled()
	switch {
	case tangled || rawTangled:
		d.watch = 2 * d.set.MaxBytes() // there is more than the secret
	case d.watch > 0 || d.again:
		d.watch -= n
	default:
		d.grid.SkipNewText()
		d.raw.SkipNewText()
		return false
	}
	d.again = d.front.holdsBack()
	d.text, d.read = d.grid.AppendNewText(d.text[:0]), d.raw.AppendNewText(d.read[:0])
	found := false
	if d.spans = d.set.Find(d.spans[:0], d.text); len(d.spans) > 0 {
		d.mask(d.set)
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

// mask masks the secrets of set in all that the screen holds, and reports
// whether there were any.
func (d *display) mask(set *redact.Set) bool {
	d.moved()
	return d.grid.Mask(finder(set)) > 0
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

// use has the secrets of set masked in all that comes from now on, and what is
// on the screen or above it, with those of veiled. It reports whether anything
// was masked there: then the log holds it, too. The caller holds mu.
func (d *display) use(set *redact.Set, veiled ...*redact.Set) (found bool) {
	d.set = set
	if d.raw == nil && set.Empty() {
		return false
	}
	if d.raw == nil {
		d.raw = d.grid.(*screen.Screen) // nothing else ever has secrets
		d.grid = d.raw.Fork()
		d.grid.TakeTangled()
	}
	for i, s := range []*feed{d.own, d.front} {
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
	found = d.mask(set)
	for _, v := range veiled {
		found = d.mask(v) || found
	}
	return d.grid.MaskAsIn(d.raw, true, leaving(set)) > 0 || found
}
