package redact

// An edge is what a program does at the right edge of the screen, or of its lines,
// to go on in the next row. Just before that it may have printed what is none of
// the text.
type edge uint8

const (
	noEdge edge = iota
	// returned is a carriage return. A line editor writes a space or the next
	// character, then one, then goes on.
	returned
	// erased is that the rest of the line was erased. A line editor does that
	// behind a space if the next character is too wide for the last column.
	erased
	// fed is a line feed. Some programs write a backslash before it.
	fed
)

// fill is what is printed before an edge.
var fill = [...]byte{returned: ' ', erased: ' ', fed: '\\'}

// reach takes an edge. What fills the line before it, and doesn't go on, is none of
// the text.
func (m *matcher) reach(e edge) {
	if m.stray.n == 1 && m.stray.c[0] == fill[e] {
		m.stray.n = 0
		m.unsegment(m.stray.at)
		e = noEdge
	}
	m.edge = e
}

// carriageReturn takes one.
func (m *matcher) carriageReturn() { m.reach(returned) }

// eraseLine takes what erases the rest of the line.
func (m *matcher) eraseLine() {
	if m.edge == noEdge {
		m.reach(erased)
	}
}

// lineFeed takes one. What is followed may go on behind an indentation.
func (m *matcher) lineFeed() {
	m.reach(fed)
	m.indented = m.depth > 0
}

// rejoin takes a byte behind an edge, with which nothing goes on, if what was
// printed just before that was for the terminal only: c as well, or what fills the
// line, which also goes on.
func (m *matcher) rejoin(x *index, e edge, c byte, at int) bool {
	last := len(m.run) - 1
	if m.run[last] == c && (e == returned || e == fed && c == fill[fed]) {
		return true
	}
	if e == noEdge || m.run[last] != fill[e] || m.depth < 2 {
		return false
	}
	lo, hi, _ := x.find(m.run[m.head:last])
	if lo, hi = x.narrow(lo, hi, m.depth-1, c); hi == 0 {
		return false
	}
	m.run[last], m.where[last] = c, at
	m.lo, m.hi, m.to = lo, hi, at+1
	m.pop()
	m.push(c, at)
	m.arrive(x, at)
	return true
}

// pass takes an edge where nothing is followed. A space before a carriage return
// is overwritten; otherwise what is before it may be of the text or not.
func (m *matcher) pass() {
	switch e := m.edge; {
	case byte(m.window) != fill[e]:
	case e == returned:
		m.pop()
	default:
		m.gap = 1
	}
	m.edge = noEdge
}

// leap is for the bytes behind a gap, where nothing is followed: a pattern may
// begin with the newest visible bytes if that which filled a line is left out.
func (m *matcher) leap(x *index) {
	n := uint(m.gap) // visible bytes behind the fill
	if m.gap++; m.gap > HoldFrom {
		m.gap = 0 // one more, as it may be erased
	}
	if n >= HoldFrom {
		return
	}
	low := m.window & (1<<(8*n) - 1)
	window := m.window>>(8*n+8)<<(8*n) | low
	if lo, hi := x.begin(uint32(window)); hi > 0 {
		for i := m.seen - 1 - n; i != m.seen-1; i++ {
			m.at[i%recent] = m.at[(i+1)%recent]
			m.under[i%recent] = m.under[(i+1)%recent]
		}
		m.window = window
		m.seen--
		m.follow(lo, hi)
	}
}

// unsegment takes the byte at, which is the last one, out of segments.
func (m *matcher) unsegment(at int) {
	n := len(m.segments) - 1
	if n < 0 || m.segments[n].To != at+1 {
		return // it is out
	}
	if m.segments[n].To = at; m.segments[n].From == at {
		m.segments = m.segments[:n]
	}
}
