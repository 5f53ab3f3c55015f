package bytelog_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol/bytelog"
)

func TestLineStart(t *testing.T) {
	long := strings.Repeat("x", 20)
	for _, test := range []struct {
		name   string
		window int
		text   string
		limit  int
		want   uint64
	}{
		{"empty", 16, "", 8, 0},
		{"all of it fits", 16, "ab\ncd", 8, 0},
		{"exactly fits", 16, "ab\ncd", 5, 0},
		{"no limit", 16, "ab\ncd", 0, 5},
		{"negative limit", 16, "ab\ncd", -1, 5},
		{"oldest line, not the newest", 16, "abc\nd\ne", 5, 4},
		{"line feed just before", 16, "abc\ndef", 3, 4},
		{"line feed first within", 16, "abc\ndef", 4, 4},
		{"carriage return is no line", 16, "abc\rdef", 5, 2},
		{"line feed at the very end starts nothing", 32, long + "\n", 8, 13},
		{"only an empty line fits", 32, long + "\n\n", 2, 21},
		{"beginning dropped", 4, "ab\ncdef", 100, 3}, // nobody knows what was before 3
		{"beginning dropped, line inside", 5, "abcd\ne\nf", 100, 5},
		{"wrapped", 8, "0123456789\nab", 8, 11},
		{"two-byte character cut", 16, "aé" + "bc", 3, 3},
		{"two-byte character whole", 16, "aé" + "bc", 4, 1},
		{"three-byte character cut once", 16, "a€b", 3, 4},
		{"three-byte character cut twice", 16, "a€b", 2, 4},
		{"four-byte character cut once", 16, "a😀b", 4, 5},
		{"four-byte character cut thrice", 16, "a😀b", 2, 5},
		{"nothing but a cut character", 16, "a😀", 3, 5},
		{"not UTF-8", 16, "a\x80\x80\x80\x80\x80b", 6, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := bytelog.New(epoch, test.window)
			l.Append([]byte(test.text))
			if got := l.LineStart(test.limit); got != test.want {
				t.Errorf("LineStart(%d) of %q = %d, want %d", test.limit, test.text, got, test.want)
			}
		})
	}
}

// The chunks in which the bytes come make no difference.
func TestLineStartAcrossChunks(t *testing.T) {
	const text = "a😀b\x80\x80\x80\x80\x80cde\n€\n"
	for from := uint64(1); from <= uint64(len(text)); from++ {
		whole := bytelog.LineStart(from, from-1, uint64(len(text)), chunks(text[from-1:], len(text)))
		for n := 1; n < 5; n++ {
			got := bytelog.LineStart(from, from-1, uint64(len(text)), chunks(text[from-1:], n))
			if got != whole {
				t.Errorf("from %d in chunks of %d: %d, want %d", from, n, got, whole)
			}
		}
	}
}

func chunks(text string, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for p := []byte(text); len(p) > 0; {
			k := min(n, len(p))
			if !yield(p[:k]) {
				return
			}
			p = p[k:]
		}
	}
}
