package redact

import (
	"bytes"
	"unicode/utf8"
)

// An escapeStyle is how a program prints non-ASCII characters, and what else it
// escapes with a backslash.
type escapeStyle struct {
	escaped string // with a backslash before it; controls as letters
	wide    func(dst []byte, r rune, encoded []byte) []byte
}

// escapes adds the forms of a secret with non-ASCII characters that programs
// print in ASCII alone.
func (e *encoder) escapes(secret []byte) {
	if !bytes.ContainsFunc(secret, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return
	}
	for _, escaped := range []string{`\`, `\'`, `\"`} {
		// Bash's printf %q, set and declare; sed's l; git.
		e.escaped(secret, escapeStyle{escaped, octal})
		for _, digits := range []string{lowerHex, upperHex} {
			// Python's bytes.
			e.escaped(secret, escapeStyle{escaped, eachByte(`\x`, digits, "")})
			// Python's ascii; Go, C and JavaScript, except beyond \u.
			e.escaped(secret, escapeStyle{escaped, eachCharacter(digits, true)})
			e.escaped(secret, escapeStyle{escaped, eachCharacter(digits, false)})
		}
	}
	e.escaped(secret, escapeStyle{"", meta}) // cat -v
	for _, digits := range []string{lowerHex, upperHex} {
		e.escaped(secret, escapeStyle{"", eachByte("<", digits, ">")}) // vim, less
	}
}

// escaped adds the secret in a style.
func (e *encoder) escaped(secret []byte, style escapeStyle) {
	const controls, letters = "\a\b\t\n\v\f\r\x1b", "abtnvfrE"
	e.tmp = e.tmp[:0]
	for i := 0; i < len(secret); {
		e.note(i)
		r, n := utf8.DecodeRune(secret[i:])
		c := secret[i]
		switch at := bytes.IndexByte([]byte(controls), c); {
		case c >= utf8.RuneSelf:
			e.tmp = style.wide(e.tmp, r, secret[i:i+n])
		case style.escaped != "" && at >= 0:
			e.tmp = append(e.tmp, '\\', letters[at])
		case bytes.IndexByte([]byte(style.escaped), c) >= 0:
			e.tmp = append(e.tmp, '\\', c)
		default:
			e.tmp = append(e.tmp, c)
		}
		i += n
	}
	e.add(e.tmp)
}

// octal appends each byte as three octal digits.
func octal(dst []byte, _ rune, encoded []byte) []byte {
	for _, c := range encoded {
		dst = append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
	}
	return dst
}

// eachByte returns what appends each byte as two digits between marks.
func eachByte(before, digits, after string) func([]byte, rune, []byte) []byte {
	return func(dst []byte, _ rune, encoded []byte) []byte {
		for _, c := range encoded {
			dst = append(append(append(dst, before...), digits[c>>4], digits[c&15]), after...)
		}
		return dst
	}
}

// eachCharacter returns a function that appends a character as 4 or 8 digits,
// or as 2 if those suffice and short is set.
func eachCharacter(digits string, short bool) func([]byte, rune, []byte) []byte {
	return func(dst []byte, r rune, encoded []byte) []byte {
		if len(encoded) == 1 {
			r = rune(encoded[0]) // it is not UTF-8
		}
		letter, n := byte('u'), 4
		switch {
		case r > 0xffff:
			letter, n = 'U', 8
		case short && r <= 0xff:
			letter, n = 'x', 2
		}
		dst = append(dst, '\\', letter)
		for n--; n >= 0; n-- {
			dst = append(dst, digits[r>>(4*n)&15])
		}
		return dst
	}
}

// meta appends each byte as cat -v prints it.
func meta(dst []byte, _ rune, encoded []byte) []byte {
	for _, c := range encoded {
		dst = append(dst, 'M', '-')
		switch c &= 0x7f; {
		case c < ' ':
			dst = append(dst, '^', c+'@')
		case c == del:
			dst = append(dst, '^', '?')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
