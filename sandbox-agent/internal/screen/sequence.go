package screen

import (
	"bytes"
	"strconv"
)

// A state is where the parser stands within a sequence.
type state uint8

const (
	ground state = iota
	escape
	escapeIntermediate
	csiEntry
	csiParam
	csiIntermediate
	csiIgnore
	ignoredString // SOS, PM or APC
	oscString
	dcsEntry
	dcsParam
	dcsIntermediate
	dcsIgnore
	dcsString
	abandonedOSC // what follows in one that was too long
)

const (
	enq = 0x05
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f

	c1DCS = 0x90
	c1SOS = 0x98
	c1CSI = 0x9b
	c1ST  = 0x9c
	c1OSC = 0x9d
	c1PM  = 0x9e
	c1APC = 0x9f
)

// Control sequences by what identity returns for them.
const (
	dollar = '$' << 8
	quote  = '"' << 8
	tick   = '\'' << 8
	space  = ' ' << 8
	query  = '?' << 8
	equals = '=' << 8
	more   = '>' << 8
	bang   = '!' << 8
)

// maxString is how much of an OSC is looked at. A longer one has no effect.
const maxString = 64 << 10

// Operating system commands that are looked at.
const (
	oscTitleAndIcon = 0
	oscTitle        = 2
	oscPalette      = 4
	oscHyperlink    = 8
	oscForeground   = 10
	oscCursor       = 12
	oscClipboard    = 52
	oscResetPalette = 104
	oscResetSpecial = 110 // and the two behind it
)

// A sequence is an escape sequence, or a string, that has begun.
type sequence struct {
	state    state
	params   params
	collect  [4]byte // private marker and intermediate characters
	nCollect int
	final    byte   // of a DCS
	str      []byte // of an OSC, or of a DCS that may be a query
	strLong  bool   // str is longer than can be kept
}

// begin enters the state at the beginning of a sequence.
func (q *sequence) begin(st state) {
	q.state = st
	q.params.reset()
	q.nCollect = 0
}

// collectByte keeps a private marker or an intermediate character. No known
// sequence has more than two.
func (q *sequence) collectByte(c byte) {
	if q.nCollect < 3 {
		q.collect[q.nCollect] = c
		q.nCollect++
	}
}

// identity returns private marker, intermediate characters and final of a
// sequence as one number.
func (q *sequence) identity(final byte) uint32 {
	id := uint32(0)
	for _, c := range q.collect[:q.nCollect] {
		id = id<<8 | uint32(c)
	}
	return id<<8 | uint32(final)
}

// addString keeps bytes of a string; of one that is too long only what comes
// before the first semicolon.
func (q *sequence) addString(p []byte) {
	if q.strLong {
		return
	}
	if q.strLong = len(q.str)+len(p) > maxString; q.strLong {
		n := max(bytes.IndexByte(q.str, ';'), 0)
		q.str = q.str[:n]
		return
	}
	q.str = append(q.str, p...)
}

func (q *sequence) beginOSC() {
	q.state = oscString
	q.str, q.strLong = q.str[:0], false
}

// dcsMayQuery reports whether the DCS that has begun is one that asks.
func (q *sequence) dcsMayQuery() bool {
	id := q.identity(q.final)
	return id == dollar|'q' || id == '+'<<8|'q'
}

// oscCounts reports whether an OSC that is too long may be one that has an
// effect on the screen.
func (q *sequence) oscCounts() bool {
	n, err := strconv.Atoi(string(q.str))
	switch {
	case err != nil:
		return true // it has no number, or too many zeros before it
	case n == oscTitleAndIcon, n == oscTitle, n == oscPalette, n == oscHyperlink, n == oscResetPalette:
		return true
	}
	return n >= oscForeground && n <= oscCursor || n >= oscResetSpecial && n <= oscResetSpecial+2
}

// appendSequence appends private marker, parameters and intermediate characters.
func (q *sequence) appendSequence(dst []byte, none bool) []byte {
	if none {
		return dst
	}
	collected := q.collect[:q.nCollect]
	if len(collected) > 0 && collected[0] >= '<' {
		dst = append(dst, collected[0])
		collected = collected[1:]
	}
	return append(q.params.append(dst), collected...)
}
