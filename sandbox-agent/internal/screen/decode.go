package screen

// breaksCharacter reports whether p ends within a character.
func breaksCharacter(p []byte) bool {
	for back := 1; back <= min(3, len(p)); back++ {
		switch c := p[len(p)-back]; {
		case c < 0x80:
			return false
		case c >= 0xc0:
			_, n := decode(p[len(p)-back:])
			return n == 0
		}
	}
	return false
}

// decode returns the character p begins with and its length in bytes: 0 when
// p ends within it. Where there is none, r is -1 and n counts bytes to skip.
func decode(p []byte) (r rune, n int) {
	c := p[0]
	var least rune
	switch {
	case c&0xe0 == 0xc0:
		n, r, least = 2, rune(c&0x1f), 0x80
	case c&0xf0 == 0xe0:
		n, r, least = 3, rune(c&0x0f), 0x800
	case c&0xf8 == 0xf0:
		n, r, least = 4, rune(c&0x07), 0x10000
	default:
		return -1, 1
	}
	for i := 1; i < n; i++ {
		if i == len(p) {
			return -1, 0
		}
		if p[i]&0xc0 != 0x80 {
			return -1, i
		}
		r = r<<6 | rune(p[i]&0x3f)
	}
	if r < least || r > 0x10ffff || r&^0x7ff == 0xd800 || r == 0xfeff {
		return -1, n
	}
	return r, n
}
