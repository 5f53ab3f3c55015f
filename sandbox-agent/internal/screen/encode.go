package screen

import (
	"strconv"
	"unicode/utf8"
)

// appendInt appends n in decimal, and what follows it.
func appendInt(dst []byte, n int, then ...byte) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), then...)
}

func appendRune(dst []byte, r rune) []byte { return utf8.AppendRune(dst, r) }
