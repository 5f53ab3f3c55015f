package redact

import (
	"encoding/binary"
	"unicode/utf8"
)

// back takes a backspace: it removes the newest visible character.
func (m *matcher) back(x *index) {
	m.edge, m.indented = noEdge, false
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

// takeBack removes the stray character.
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

// recover looks for a beginning in what a backspace left.
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
