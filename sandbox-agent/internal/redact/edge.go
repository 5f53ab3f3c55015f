package redact

// An edge is how a program goes on in the next row at the right edge of the
// screen or of its lines. Just before it the program may have printed a byte
// that is not of the text.
type edge uint8

const (
	noEdge edge = iota
	// returned is a carriage return. A line editor writes a space or the next
	// character, the carriage return, then goes on.
	returned
	// erased means that the rest of the line was erased. A line editor does so
	// after a space if the next character is too wide for the last column.
	erased
	// fed is a line feed. Some programs write a backslash before it.
	fed
)

// fill is the byte printed before an edge.
var fill = [...]byte{returned: ' ', erased: ' ', fed: '\\'}

// reach takes an edge. A stray fill byte before it is not of the text.
func (m *matcher) reach(e edge) {
	if m.stray.n == 1 && m.stray.c[0] == fill[e] {
		m.stray.n = 0
		m.unsegment(m.stray.at)
		e = noEdge
	}
	m.edge = e
}

// carriageReturn takes a carriage return.
func (m *matcher) carriageReturn() { m.reach(returned) }

// eraseLine takes a sequence that erases the rest of the line.
func (m *matcher) eraseLine() {
	if m.edge == noEdge {
		m.reach(erased)
	}
}

// lineFeed takes a line feed. The followed text may go on after an indentation.
func (m *matcher) lineFeed() {
	m.reach(fed)
	m.indented = m.depth > 0
}

// rejoin takes a byte after an edge that doesn't continue the text, if the byte
// printed before the edge was for the terminal only: c itself or a fill byte
// that also continues the text.
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

// pass takes an edge while nothing is followed. A carriage return overwrites a
// space before it; other fill may be of the text or not.
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

// leap is for the bytes after a gap while nothing is followed: a pattern may
// begin with the newest visible bytes without the fill.
func (m *matcher) leap(x *index) {
	n := uint(m.gap) // visible bytes after the fill
	if m.gap++; m.gap > HoldFrom {
		m.gap = 0 // one more, because it may be erased
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

// unsegment removes the byte at, the last one, from segments.
func (m *matcher) unsegment(at int) {
	n := len(m.segments) - 1
	if n < 0 || m.segments[n].To != at+1 {
		return // it is out
	}
	if m.segments[n].To = at; m.segments[n].From == at {
		m.segments = m.segments[:n]
	}
}
