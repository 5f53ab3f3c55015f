package screen

import "strconv"

// appendInt appends n in decimal, and what follows it.
func appendInt(dst []byte, n int, then ...byte) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), then...)
}
