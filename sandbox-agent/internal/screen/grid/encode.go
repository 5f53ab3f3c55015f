package grid

import "strconv"

// AppendInt appends n in decimal, and what follows it.
func AppendInt(dst []byte, n int, then ...byte) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), then...)
}
