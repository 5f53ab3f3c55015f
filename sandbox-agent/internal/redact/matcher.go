package redact

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// recent is how many visible bytes a matcher knows while no secret is near.
const recent = 8

// maxTries is how many beginnings are looked at for a character that may be
// erased. Only secrets that repeat themselves have more.
const maxTries = 64

// A matcher looks for patterns in the visible bytes of one text. It follows the
// longest end of the text with which a pattern begins; shorter ends are looked
// at when that one turns out to be no secret. So each byte of the text is a
// beginning at most once, whatever the patterns are.
type matcher struct {
	window uint64      // the newest visible bytes, the last one lowest
	at     [recent]int // where they stand: that of visible byte i at i % recent
	// under is where a character stands that was erased to print visible byte i.
	under [recent]Span
	seen  uint // visible bytes
	// edge is what stands behind the newest visible byte. What filled the line
	// before it is gap bytes back if that may be none of the text, else gap is 0.
	// indented is set where a line has begun.
	edge     edge
	gap      uint8
	indented bool

	// The end of the text that is followed: patterns [lo, hi) begin with
	// run[head:], whose bytes stand at where[head:]. None if depth is 0.
	lo, hi, depth int
	run           []byte
	where         []int
	head          int
	stray         stray

	// to is behind the last byte that went on, also if it is erased since, and
	// outTo is where what can be held begins.
	to, outTo int
	// segments is where visible bytes stand, erased ones too, since something is
	// followed; masks is where secrets are. Both are in order.
	segments, masks []Span
	// matches counts secrets; what is before countedTo is counted.
	matches   uint64
	countedTo int
}

// A stray is a character behind what is followed with which that doesn't go on. It
// counts only when another one follows: a backspace may take it back.
type stray struct {
	c    [utf8.UTFMax]byte
	n    int // bytes; 0 if there is none
	at   int
	held bool
	from int // where what is held begins
}

// push takes a visible byte into the window.
func (m *matcher) push(c byte, at int) {
	m.window = m.window<<8 | uint64(c)
	m.at[m.seen%recent] = at
	m.seen++
}

// pop takes the newest visible character out of the window.
func (m *matcher) pop() {
	for n := 1; ; n++ {
		c := byte(m.window)
		m.window >>= 8
		m.seen--
		if m.gap > 0 {
			m.gap--
		}
		if c&0xc0 != 0x80 {
			at := m.at[m.seen%recent]
			m.under[m.seen%recent] = Span{at, at + n}
			return
		}
	}
}

// scan takes the printable characters that p begins with, as long as nothing is
// followed. It returns how many bytes that were.
func (m *matcher) scan(x *index, p []byte, at int) int {
	if m.edge != noEdge {
		m.pass()
	}
	if m.gap > 0 {
		return m.scanGap(x, p, at)
	}
	w := uint32(m.window)
	filter, shift := x.filter, x.filterShift
	i := 0
	for ; i < len(p); i++ {
		c := p[i]
		if !printable(c) {
			if c < 0x80 {
				break
			}
			n, hit := m.scanCharacter(x, p, i, at, &w)
			if hit {
				return i + n
			}
			if n == 0 {
				break
			}
			i += n - 1
			continue
		}
		w = w<<8 | uint32(c)
		h := w * filterFactor >> shift
		if filter[h>>6]>>(h&63)&1 == 0 {
			continue
		}
		if lo, hi := x.begin(w); hi > 0 {
			m.skip(p[:i+1], at)
			m.follow(lo, hi)
			return i + 1
		}
	}
	m.skip(p[:i], at)
	return i
}

// scanGap takes the character that p begins with, behind a gap, for scan.
func (m *matcher) scanGap(x *index, p []byte, at int) int {
	r, n := utf8.DecodeRune(p)
	if r == utf8.RuneError && n < 2 || r >= del && r < 0xa0 || unseen(r) {
		return 0
	}
	m.steps(x, p[:n], at)
	return n
}

// steps takes bytes of a character that stays.
func (m *matcher) steps(x *index, c []byte, at int) {
	for i, b := range c {
		if m.depth > 0 {
			m.segment(at+i, 1)
		}
		m.step(x, b, at+i)
	}
}

// scanCharacter takes the character p[i:], which is not ASCII, for scan, whose
// window is w. It returns the length of the character, 0 if it doesn't print or is
// not complete, and whether something is followed now.
func (m *matcher) scanCharacter(x *index, p []byte, i, at int, w *uint32) (n int, hit bool) {
	if n = common(p[i:]); n == 0 {
		var r rune
		r, n = utf8.DecodeRune(p[i:])
		if r == utf8.RuneError && n < 2 || r < 0xa0 || unseen(r) {
			return 0, false
		}
	}
	if !x.wideHeads { // nothing begins with a part of it
		*w = uint32(p[i+n-1])
		return n, false
	}
	for j := i; j < i+n; j++ {
		if *w = *w<<8 | uint32(p[j]); !x.may(*w) {
			continue
		}
		if lo, hi := x.begin(*w); hi > 0 {
			m.skip(p[:j+1], at)
			m.follow(lo, hi)
			m.steps(x, p[j+1:i+n], at+j+1)
			return n, true
		}
	}
	return n, false
}

// skip takes visible bytes into the window, which are known to begin nothing.
func (m *matcher) skip(p []byte, at int) {
	if n := len(p) - recent; n > 0 {
		p, at = p[n:], at+n
	}
	for i, c := range p {
		m.push(c, at+i)
	}
}

// follow begins to follow the last HoldFrom bytes.
func (m *matcher) follow(lo, hi int) {
	m.lo, m.hi, m.depth = lo, hi, HoldFrom
	m.gap, m.indented = 0, false
	m.take(HoldFrom)
}

// take makes the last n visible bytes those that are followed.
func (m *matcher) take(n int) {
	m.run, m.where, m.head = m.run[:0], m.where[:0], 0
	for i := n - 1; i >= 0; i-- {
		at := m.at[(m.seen-1-uint(i))%recent]
		if u := m.under[(m.seen-1-uint(i))%recent]; len(m.where) > 0 && u.From > m.where[len(m.where)-1] && u.From < at {
			m.segment(u.From, u.To-u.From)
		}
		m.run = append(m.run, byte(m.window>>(8*i)))
		m.where = append(m.where, at)
		m.segment(at, 1)
		m.to = at + 1
	}
}

// segment notes that n visible bytes stand at.
func (m *matcher) segment(at, n int) {
	k := len(m.segments)
	switch {
	case k == 0 || m.segments[k-1].To < at:
		m.segments = append(m.segments, Span{at, at + n})
	case m.segments[k-1].To == at:
		m.segments[k-1].To += n
	}
}

// chase takes the printable ASCII that p begins with, as long as something is
// followed. It returns how much that was.
func (m *matcher) chase(x *index, p []byte, at int) int {
	for i := range p {
		if !printable(p[i]) {
			return i
		}
		if m.stray.n > 0 {
			if m.settle(x); m.depth == 0 {
				return i
			}
		}
		e, indented := m.edge, m.indented
		m.edge, m.indented = noEdge, indented && p[i] == ' '
		lo, hi := x.narrow(m.lo, m.hi, m.depth, p[i])
		if hi == 0 && m.indented {
			m.edge = e
			continue
		}
		m.segment(at+i, 1)
		if hi > 0 {
			m.advance(x, lo, hi, p[i], at+i)
		} else if !m.rejoin(x, e, p[i], at+i) {
			m.wait(x, p[i:i+1], at+i)
		}
		if m.depth == 0 {
			return i + 1
		}
	}
	return len(p)
}

// character takes the character c, which is not ASCII, while something is
// followed.
func (m *matcher) character(x *index, c []byte, at int) {
	if m.stray.n > 0 {
		m.settle(x)
	}
	e := m.edge
	m.edge, m.indented = noEdge, false
	if m.depth > 0 {
		m.segment(at, len(c))
		lo, hi := m.lo, m.hi
		for i, b := range c {
			if lo, hi = x.narrow(lo, hi, m.depth+i, b); hi > 0 {
				continue
			}
			if !m.rejoin(x, e, c[0], at) {
				m.wait(x, c, at)
				return
			}
			c, at = c[1:], at+1
			break
		}
	}
	m.steps(x, c, at)
}

// strayFrom is from how many bytes of a pattern on a stray character is held with
// them. Fewer are mostly there by accident.
const strayFrom = 8

// wait makes c, which doesn't go on, the stray character. It is held if all before
// it is, and if another beginning that is goes on with it.
func (m *matcher) wait(x *index, c []byte, at int) {
	m.stray = stray{at: at, held: m.depth >= strayFrom && m.holds(x), from: m.where[m.head]}
	m.stray.n = copy(m.stray.c[:], c)
	t := append(m.run[m.head:], c...)
	for k, tries := 1, 0; k+HoldFrom <= len(t) && !m.stray.held; k++ {
		if x.may(binary.BigEndian.Uint32(t[k:])) {
			lo, hi, _ := x.find(t[k:])
			tries++
			m.stray.held = hi > 0 && x.holds(lo, hi, len(t)-k) || tries == maxTries
			m.stray.from = m.where[m.head+min(k, m.depth-1)]
		}
	}
}

// settle takes the stray character: it stays.
func (m *matcher) settle(x *index) {
	n := m.stray.n
	m.stray.n = 0
	for i, c := range m.stray.c[:n] {
		m.step(x, c, m.stray.at+i)
	}
}

// step takes a visible byte that stays.
func (m *matcher) step(x *index, c byte, at int) {
	if m.depth == 0 {
		m.push(c, at)
		if w := uint32(m.window); x.may(w) {
			if lo, hi := x.begin(w); hi > 0 {
				m.follow(lo, hi)
				return
			}
		}
		if m.gap > 0 {
			m.leap(x)
		}
		return
	}
	if lo, hi := x.narrow(m.lo, m.hi, m.depth, c); hi > 0 {
		m.advance(x, lo, hi, c, at)
		return
	}
	m.push(c, at)
	m.fail(x, c, at)
}

// advance takes a byte with which patterns [lo, hi) go on.
func (m *matcher) advance(x *index, lo, hi int, c byte, at int) {
	m.push(c, at)
	m.run = append(m.run, c)
	m.where = append(m.where, at)
	m.lo, m.hi, m.to = lo, hi, at+1
	m.depth++
	m.arrive(x, at)
}

// arrive masks the secret that is complete with the byte that stands at.
func (m *matcher) arrive(x *index, at int) {
	if x.size(m.lo) != m.depth {
		return
	}
	m.mask(m.where[m.head], at+1)
	m.outTo = max(m.outTo, at+1)
}

// fail takes a byte with which what is followed doesn't go on.
func (m *matcher) fail(x *index, c byte, at int) {
	m.run = append(m.run, c)
	m.where = append(m.where, at)
	m.depth++
	m.retry(x)
}

// retry drops the beginning of what is followed until a pattern begins with the
// rest. Secrets that are complete within what is dropped are masked.
func (m *matcher) retry(x *index) {
	t, where := m.run[m.head:], m.where[m.head:]
	for k := 1; k+HoldFrom <= len(t); k++ {
		if !x.may(binary.BigEndian.Uint32(t[k:])) {
			continue
		}
		lo, hi, whole := x.find(t[k:])
		if whole > 0 {
			m.mask(where[k], where[k+whole-1]+1)
		}
		if hi == 0 || hi-lo == 1 && whole == len(t)-k {
			continue // no pattern, or a complete one, goes on
		}
		if whole > 0 {
			m.outTo = max(m.outTo, where[k+whole-1]+1)
		}
		m.lo, m.hi, m.depth, m.to = lo, hi, len(t)-k, where[len(t)-1]+1
		m.head += k
		m.compact()
		return
	}
	m.drop()
}

// compact gives back what lies before head, once that is most of it.
func (m *matcher) compact() {
	if m.head > 1024 && m.head > len(m.run)/2 {
		m.run = slices.Delete(m.run, 0, m.head)
		m.where = slices.Delete(m.where, 0, m.head)
		m.head = 0
	}
}

// drop follows nothing any more.
func (m *matcher) drop() {
	m.run, m.where, m.head, m.depth, m.stray.n = m.run[:0], m.where[:0], 0, 0, 0
	masked := 0
	if n := len(m.masks); n > 0 {
		masked = m.masks[n-1].To
	}
	for n := len(m.segments); n > 0 && m.segments[n-1].From >= masked; n-- {
		m.segments = m.segments[:n-1]
	}
}
