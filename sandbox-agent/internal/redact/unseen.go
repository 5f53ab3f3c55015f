package redact

import "unicode"

// unseenBits has a bit for each of the first 0x20000 characters: whether it is one
// without width.
var unseenBits = func() (bits [0x20000 / 64]uint64) {
	set := func(lo, hi, stride uint32) {
		for r := lo; r <= hi && r < 0x20000; r += stride {
			bits[r>>6] |= 1 << (r & 63)
		}
	}
	for _, t := range []*unicode.RangeTable{unicode.Mn, unicode.Me, unicode.Cf, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector} {
		for _, r := range t.R16 {
			set(uint32(r.Lo), uint32(r.Hi), uint32(r.Stride))
		}
		for _, r := range t.R32 {
			set(r.Lo, r.Hi, r.Stride)
		}
	}
	return bits
}()

// unseen reports whether r, which is no control, has no width, or is one that
// viewers show nothing for: marks that combine with the character before them,
// format characters, and all else that Unicode has ignored by default.
func unseen(r rune) bool {
	if uint32(r) < 0x20000 {
		return unseenBits[r>>6]>>(r&63)&1 != 0
	}
	return r>>12 == 0xe0
}

// common returns the length of the character that p begins with if it is one of
// those that most output beyond ASCII consists of, all of which have a width: Latin
// letters up to U+02FF, lines and symbols from U+2500 to U+27FF, katakana, and
// ideographs from U+4000 to U+9FFF. Otherwise it returns 0.
func common(p []byte) int {
	c := p[0]
	if c >= 0xc3 && c <= 0xcb && len(p) > 1 && p[1]&0xc0 == 0x80 {
		return 2
	}
	if len(p) < 3 || p[1]&0xc0 != 0x80 || p[2]&0xc0 != 0x80 {
		return 0
	}
	if c >= 0xe4 && c <= 0xe9 || c == 0xe2 && p[1] >= 0x94 && p[1] <= 0x9f || c == 0xe3 && p[1] == 0x83 {
		return 3
	}
	return 0
}

// accompany takes a character without width. It goes with what is printed before
// and behind it: if both are masked, or it follows a secret, so is it.
func (m *matcher) accompany(at, n int) {
	if m.depth > 0 {
		m.segment(at, n)
	} else if under := &m.under[m.seen%recent]; under.To == at {
		under.To += n
	} else {
		*under = Span{at, at + n}
	}
	if at > 0 && at == m.countedTo {
		m.segment(at, n)
		m.hide(at, at+n)
		m.countedTo += n
	}
}
