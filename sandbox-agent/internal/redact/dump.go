package redact

// maxDumpBytes is the greatest length of a secret that is looked for in groups
// of several bytes. Programs print groups with offsets and a few per line, so a
// long secret is never whole.
const maxDumpBytes = 128

// dumps adds digits as in dumps without offsets.
func (e *encoder) dumps(secret []byte) {
	for _, digits := range []string{lowerHex, upperHex} {
		for _, mark := range []string{"", ":", " ", `\x`} {
			e.pairs(secret, digits, mark, "", len(mark) == 1)
		}
		// C source, as xxd -i prints it.
		e.pairs(secret, digits, "0x", ", ", false)
	}
	if len(secret) > maxDumpBytes {
		return
	}
	for phase := range 2 {
		e.groups(secret, lowerHex, 2, phase)
		e.groups(secret, upperHex, 2, phase)
	}
	for phase := range 4 {
		e.groups(secret, lowerHex, 4, phase)
	}
	e.words(secret)
	e.words(secret[1:])
}

// pairs adds the digits of each byte, with before and behind around them. If
// inner is set, nothing precedes the first.
func (e *encoder) pairs(secret []byte, digits, before, behind string, inner bool) {
	e.tmp = e.tmp[:0]
	for i, c := range secret {
		if i > 0 || !inner {
			e.tmp = append(e.tmp, before...)
		}
		e.note(i)
		e.tmp = append(e.tmp, digits[c>>4], digits[c&15])
		if i < len(secret)-1 {
			e.tmp = append(e.tmp, behind...)
		}
	}
	e.add(e.tmp)
}

// groups adds digits in groups of size bytes. The secret begins with byte phase
// of a group.
func (e *encoder) groups(secret []byte, digits string, size, phase int) {
	e.tmp = e.tmp[:0]
	for i, c := range secret {
		if i > 0 && (i+phase)%size == 0 {
			e.tmp = append(e.tmp, ' ')
		}
		e.note(i)
		e.tmp = append(e.tmp, digits[c>>4], digits[c&15])
	}
	e.add(e.tmp)
}

// words adds the two-byte words, low byte first, that od -x prints. It omits a
// last byte that is half a word.
func (e *encoder) words(secret []byte) {
	e.tmp = e.tmp[:0]
	for i := 0; i+1 < len(secret); i += 2 {
		if i > 0 {
			e.tmp = append(e.tmp, ' ')
		}
		e.note(i)
		for _, c := range []byte{secret[i+1], secret[i]} {
			e.tmp = append(e.tmp, lowerHex[c>>4], lowerHex[c&15])
		}
	}
	e.add(e.tmp)
}
