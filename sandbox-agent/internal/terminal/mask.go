package terminal

import (
	"bytes"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// contextBytes is how much of what was printed before decides about what comes
// next when the first secret is set: enough for one of any usual length, with
// colours in between.
const contextBytes = 64 << 10

// can is the control that ends a sequence without an effect.
const can = 0x18

// A masker keeps secrets out of a terminal's log. The terminal's mutex guards
// it.
//
// Once there is a secret a terminal has two screens. What a program prints goes
// to raw, which knows its true state and answers its queries at once; then
// through the program's stream, which masks, and may hold bytes back; then to
// the keyframer's screen, which is that of the log. Before the first secret
// there is the latter alone.
type masker struct {
	set  *redact.Set
	raw  *screen.Screen // nil: there has never been a secret
	buf  []byte         // what a stream let out
	text []byte         // of the screen
	read []byte         // of raw
	held holding

	spans []redact.Span

	// The screen must be looked at whatever comes: what was held back when raw was
	// may have come since; and a secret may go on in the bytes of output that come
	// next, line by line.
	again bool
	watch int

	// What was drawn on the screen out of order showed a secret, which is masked
	// there. The log, which has not got that output, is about to begin anew.
	due   bool
	last  time.Time // when the log last did so
	found int       // secrets that were drawn out of order
}

// holding says since when bytes of the program in front have been held back
// without more output.
type holding struct {
	since     time.Time // zero: none are
	announced bool
}

// grid returns the screen that output goes to first.
func (t *Terminal) grid() grid {
	if t.mask.raw != nil {
		return t.mask.raw
	}
	return t.keyframes.grid
}

// masked takes what the screen let out of p's output and returns what the log
// gets of it, which may be in the same place. With end it is p's last. It is
// called with mu held.
func (t *Terminal) masked(p *program, out []byte, end bool) []byte {
	m := &t.mask
	if m.raw == nil || len(out) == 0 && !end {
		return out
	}
	m.buf = p.stream.Write(append(m.buf[:0], p.loose...), out)
	p.loose = p.loose[:0]
	if end {
		m.buf = p.stream.Flush(m.buf)
	}
	t.notice(p, true)
	return t.show(out[:0], m.buf, end)
}

// show writes masked output to the screen of the log and appends to dst what
// the log gets. It is called with mu held.
func (t *Terminal) show(dst, masked []byte, end bool) []byte {
	m, k := &t.mask, &t.keyframes
	dst, _ = k.grid.Write(dst, nil, masked)
	if end {
		dst = k.grid.Flush(dst)
	}
	k.moved()
	if t.drawn(len(masked)) {
		m.found++
		m.due = true
		t.beginAnewIfDue(time.Now())
		t.poke()       // for when it has to wait
		return dst[:0] // it is in the screen that the new epoch begins with
	}
	if m.due {
		return dst[:0]
	}
	return dst
}

// drawn masks a secret that the screen has come to show though the stream, which
// looks at the order of output, let it pass, and reports whether there was one.
// It looks at both screens: that of the log has asterisks for parts of it that
// are secrets themselves. It is called with mu held, after n bytes of output.
func (t *Terminal) drawn(n int) bool {
	m, k := &t.mask, &t.keyframes
	tangled, rawTangled := k.grid.TakeTangled(), m.raw.TakeTangled()
	switch {
	case tangled || rawTangled:
		m.watch = 2 * m.set.MaxBytes() // there is more than the secret
	case m.watch > 0 || m.again:
		m.watch -= n
	default:
		k.grid.SkipNewText()
		m.raw.SkipNewText()
		return false
	}
	m.again = t.holdsBack()
	m.text, m.read = k.grid.AppendNewText(m.text[:0]), m.raw.AppendNewText(m.read[:0])
	found := false
	if m.spans = m.set.Find(m.spans[:0], m.text); len(m.spans) > 0 {
		k.mask(m.set)
		found = true
	}
	if bytes.Equal(m.text, m.read) {
		return found
	}
	if m.spans = m.set.Find(m.spans[:0], m.read); len(m.spans) > 0 {
		if k.grid.MaskAsIn(m.raw, false, leaving(m.set)) > 0 {
			k.moved()
			found = true
		}
	}
	return found
}

// holdsBack reports whether output of the program in front is held back. It is
// called with mu held.
func (t *Terminal) holdsBack() bool {
	p := t.stage.front
	return p.stream != nil && p.stream.Held() > 0
}

// mask masks the secrets of set in all that the screen holds, and reports
// whether there were any.
func (k *keyframer) mask(set *redact.Set) bool {
	k.moved()
	return k.grid.Mask(finder(set)) > 0
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

// notice notes what p, if it is in front, has held back, after output of its or
// not. It is called with mu held.
func (t *Terminal) notice(p *program, printed bool) {
	h := &t.mask.held
	switch {
	case p != t.stage.front:
	case !t.holdsBack():
		if h.announced {
			t.announceHeld(false)
		}
		*h = holding{}
	case h.since.IsZero():
		h.since = time.Now()
		t.poke()
	case printed:
		h.since = time.Now() // the deadline that runs is early
	}
}

// checkHeld tells everybody of output that has been held back for long, and
// returns how long until that is due. It is called with mu held.
func (t *Terminal) checkHeld(now time.Time) time.Duration {
	h := &t.mask.held
	if h.since.IsZero() || h.announced {
		return noDeadline
	}
	if wait := h.since.Add(protocol.HeldNotice).Sub(now); wait > 0 {
		return wait
	}
	t.announceHeld(true)
	return noDeadline
}

func (t *Terminal) announceHeld(held bool) {
	t.mask.held.announced = held
	for a := range t.attachments {
		a.post(protocol.Held{Held: held})
	}
}

// use has the secrets of set masked in all that comes from now on, and what is
// on the screen or above it, with those of veiled. It reports whether anything
// was masked there: then the log holds it, too. It is called with mu held.
func (t *Terminal) use(set *redact.Set, veiled ...*redact.Set) (found bool) {
	m := &t.mask
	m.set = set
	if m.raw == nil && set.Empty() {
		return false
	}
	if m.raw == nil {
		m.raw = t.keyframes.grid.(*screen.Screen) // nothing else ever has secrets
		t.keyframes.grid = m.raw.Fork()
		t.keyframes.grid.TakeTangled()
	}
	var let []byte
	for i, p := range []*program{t.own, t.stage.front} {
		switch {
		case i > 0 && p == t.own:
		case p.stream != nil:
			p.loose = p.stream.Use(p.loose, set)
		case p == t.stage.front:
			p.stream = set.NewStreamAfter(t.tail(contextBytes))
		default:
			p.stream = set.NewStream()
		}
	}
	if p := t.stage.front; len(p.loose) > 0 {
		let, p.loose = p.loose, nil
	}
	t.append(t.show(nil, let, false))
	t.notice(t.stage.front, false)
	m.raw.Tangle() // a secret may be half printed
	m.again = t.holdsBack()
	found = t.keyframes.mask(set)
	for _, v := range veiled {
		found = t.keyframes.mask(v) || found
	}
	return t.keyframes.grid.MaskAsIn(m.raw, true, leaving(set)) > 0 || found
}

// handOver is what switchTo does where there are secrets, with the screen of the
// log. What a coding agent has held back is masked, since it has ended; what the
// terminal's own program has, comes when that goes on. It is called with mu held.
func (t *Terminal) handOver(p *program, to screen.Modes) {
	m, from := &t.mask, t.stage.front
	if p.stream == nil {
		p.stream = m.set.NewStream()
	}
	m.buf = m.buf[:0]
	if from == t.own {
		from.loose = from.stream.Write(from.loose, []byte{can}) // it gave up what was unfinished
	} else {
		m.buf = from.stream.Flush(append(m.buf, from.loose...))
		from.stream = nil // it has ended, and needs no secrets
	}
	t.append(t.show(nil, m.buf, false))
	seq, _ := t.keyframes.grid.AppendHandover(nil, to)
	t.append(t.show(nil, seq, false))
}

// tail returns at most the last n bytes of the log. It is called with mu held.
func (t *Terminal) tail(n int) (tail []byte) {
	head := t.output.Head()
	cursor, err := t.output.CursorAt(max(t.output.Oldest(), head-min(head, uint64(n))))
	if err != nil {
		return nil // it can't: the log holds that
	}
	for cursor.Offset() < head {
		item, ok, err := t.output.Next(&cursor, n)
		if !ok || err != nil {
			return nil // the same
		}
		tail = append(tail, item.Bytes...)
	}
	return tail
}
