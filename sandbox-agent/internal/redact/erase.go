package redact

import (
	"encoding/binary"
	"unicode/utf8"
)

// back takes a backspace: the newest visible character is not there any more.
func (m *matcher) back(x *index) {
	m.returned = false
	if m.stray.n > 0 {
		m.takeBack(x)
		return
	}
	if m.depth == 0 {
		if m.window != 0 {
			m.pop()
			m.recover(x)
		}
		return
	}
	m.completed(x, m.run[m.head:], m.where[len(m.where)-1]+1)
	_, n := utf8.DecodeLastRune(m.run[m.head:])
	m.window >>= 8 * n
	m.seen -= uint(n)
	if m.depth -= n; m.depth == 0 {
		m.drop()
		return
	}
	m.run = m.run[:m.head+m.depth]
	m.where = m.where[:m.head+m.depth]
	m.lo, m.hi, _ = x.find(m.run[m.head:])
}

// takeBack takes back the stray character.
func (m *matcher) takeBack(x *index) {
	m.completed(x, append(m.run[m.head:], m.stray.c[:m.stray.n]...), m.stray.at+m.stray.n)
	m.stray.n = 0
}

// completed masks a secret that t, which begins like what is followed, ends with
// at to, if it began later. Otherwise that is known when what is followed is not
// any more, but then a character that is erased is not there.
func (m *matcher) completed(x *index, t []byte, to int) {
	if len(t) < MinSecretBytes || !x.mayEnd(t) {
		return
	}
	for k, tries := 1, 0; k+MinSecretBytes <= len(t) && tries < maxTries; k++ {
		if !x.may(binary.BigEndian.Uint32(t[k:])) {
			continue
		}
		if _, _, whole := x.find(t[k:]); whole == len(t)-k {
			m.mask(m.where[m.head+k], to)
			return
		}
		tries++
	}
}

// recover looks for a beginning in what a backspace has left.
func (m *matcher) recover(x *index) {
	var t [recent]byte
	n := 0
	for ; n < recent && byte(m.window>>(8*n)) != 0; n++ {
		t[recent-1-n] = byte(m.window >> (8 * n))
	}
	for ; n >= HoldFrom; n-- {
		if lo, hi, whole := x.find(t[recent-n:]); hi > 0 && whole == 0 {
			m.lo, m.hi, m.depth = lo, hi, n
			m.take(n)
			return
		}
	}
}

// carriageReturn takes one. A space before it that doesn't go on is none of the
// text.
func (m *matcher) carriageReturn() {
	switch {
	case m.stray.n == 1 && m.stray.c[0] == ' ':
		m.stray.n = 0
		m.unsegment(m.stray.at)
	default:
		m.returned = true
	}
}

// rejoin takes a byte behind a carriage return, with which nothing goes on, if
// what was printed just before that was for the terminal only: c as well, or a
// space that also goes on.
func (m *matcher) rejoin(x *index, c byte, at int) bool {
	last := len(m.run) - 1
	if m.run[last] == c {
		return true
	}
	if m.run[last] != ' ' || m.depth < 2 {
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

// lineFeed takes one.
func (m *matcher) lineFeed() { m.returned = false }

// wrapped takes the space that a line editor wrote before its carriage return out
// of the window.
func (m *matcher) wrapped() {
	m.returned = false
	if byte(m.window) == ' ' {
		m.pop()
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
