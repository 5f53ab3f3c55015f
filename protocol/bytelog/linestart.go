package bytelog

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// LineStart returns where in the bytes [from, head) a new reader should begin:
// at the oldest line start, which is offset 0 or the byte after a line feed.
// Without one it is the oldest place that doesn't split a UTF-8 character, or
// from if the bytes are not UTF-8. A line feed that ends the bytes starts no
// line yet.
//
// Chunks yields the bytes [at, head), where at is from, or from−1 to include a
// line feed just before from.
func LineStart(from, at, head uint64, chunks iter.Seq[[]byte]) uint64 {
	if from == 0 {
		return 0
	}
	boundary, found := head, false
	for chunk := range chunks {
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 && at+uint64(i)+1 < head {
			return at + uint64(i) + 1
		}
		for i := 0; !found && i < len(chunk); i++ {
			switch o := at + uint64(i); {
			case o < from:
			case utf8.RuneStart(chunk[i]):
				boundary, found = o, true
			case o == from+utf8.UTFMax-1: // no character is that long
				boundary, found = from, true
			}
		}
		at += uint64(len(chunk))
	}
	return boundary
}
