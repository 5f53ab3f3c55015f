package source

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// stampFormat is how a page's number is printed at the start of its lines.
const stampFormat = "%012d"

// lineRoom is more than a line takes.
const lineRoom = 400

// newTemplate makes up a page.
func newTemplate(rng *rand.Rand) template {
	var t template
	out := []byte("\x1bc")
	out = fmt.Appendf(out, "\x1b]2;page of %08x\x07", rng.Uint32())
	for len(out) < PageBytes-lineRoom {
		t.stamps = append(t.stamps, len(out))
		out = fmt.Appendf(out, stampFormat+" ", 0)
		for range 1 + rng.IntN(6) {
			out = append(out, piece(rng)...)
		}
		out = append(out, "\r\n"...)
	}
	t.stamps = append(t.stamps, len(out))
	out = fmt.Appendf(out, stampFormat, 0)
	t.bytes = append(out, strings.Repeat(".", PageBytes-len(out))...)
	return t
}

var words = strings.Fields(`build link test pass fail warning error note file line main init draw 東京 日本語 naïve café
	Größe привет 👍 👩‍💻 é ﷽ ┌──┐ │ok│ └──┘ 0x7fff 100% a=b --flag ./path/to/file`)

// piece makes up a part of a line, of at most 60 bytes: nothing in it is a
// query or erases up to the last cell of the screen, which would not reach a
// viewer as it is, or turns autowrap off, for what xterm.js then shows depends
// on how the output is cut into writes.
func piece(rng *rand.Rand) string {
	word := words[rng.IntN(len(words))]
	switch rng.IntN(20) {
	case 0:
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", 30+rng.IntN(8), word)
	case 1:
		return fmt.Sprintf("\x1b[1;38;5;%dm%s", rng.IntN(256), word)
	case 2:
		return fmt.Sprintf("\x1b[48;2;%d;%d;%dm%s\x1b[m", rng.IntN(256), rng.IntN(256), rng.IntN(256), word)
	case 3:
		return fmt.Sprintf("\x1b[%d;%dH%s", 1+rng.IntN(24), 1+rng.IntN(80), word)
	case 4:
		return fmt.Sprintf("\x1b[%d%c", 1+rng.IntN(5), "ABCD"[rng.IntN(4)])
	case 5:
		return fmt.Sprintf("\x1b[%d%c", 1+rng.IntN(5), "@PLMX"[rng.IntN(5)])
	case 6:
		return [...]string{"\x1b[K", "\x1b[1K", "\x1b[J", "\x1b[9;40H\x1b[1J"}[rng.IntN(4)]
	case 7:
		top := 1 + rng.IntN(12)
		return fmt.Sprintf("\x1b[%d;%dr", top, top+2+rng.IntN(10))
	case 8:
		return "\x1b[r\x1b[24;1H"
	case 9:
		return fmt.Sprintf("\x1b[?%d%c", []int{1, 6, 25, 2004, 1000}[rng.IntN(5)], "hl"[rng.IntN(2)])
	case 10:
		return "\x1b(0lqqqk\x1b(B"
	case 11:
		return "\x1b7" + word + "\x1b8"
	case 12:
		if rng.IntN(8) > 0 {
			return "\t" + word
		}
		return fmt.Sprintf("\x1b[?1049%c", "hl"[rng.IntN(2)])
	case 13:
		return fmt.Sprintf("\x1b]8;;https://example.org/%d\x1b\\%s\x1b]8;;\x1b\\", rng.IntN(9), word)
	default:
		return word + " "
	}
}
