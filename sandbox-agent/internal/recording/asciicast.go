package recording

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// appendEvent appends an event's line: [seconds, "code", "data"].
func appendEvent(dst []byte, at time.Duration, code byte, data []byte) []byte {
	dst = append(dst, '[')
	dst = strconv.AppendFloat(dst, at.Seconds(), 'f', 6, 64)
	dst = append(dst, `, "`...)
	dst = append(dst, code)
	dst = append(dst, `", `...)
	dst = appendString(dst, data)
	return append(dst, "]\n"...)
}

const hexDigits = "0123456789abcdef"

// appendString appends p as a JSON string. A byte that is no part of a UTF-8
// character becomes U+FFFD.
func appendString(dst, p []byte) []byte {
	dst = append(dst, '"')
	from := 0 // everything before it is in dst
	for i := 0; i < len(p); {
		c := p[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(p[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, p[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, p[from:i-1]...)
		from = i
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, p[from:]...), '"')
}

// incomplete returns how many bytes at the end of p begin a character that is
// not complete.
func incomplete(p []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(p)); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
