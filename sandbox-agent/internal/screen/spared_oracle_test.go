package screen_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Why viewers get something else than what the program wrote.
const (
	sparedErase = "erasing that xterm.js fails at"
	sparedCount = "huge count"
	sparedMarks = "too much for one cell"
	sparedEnter = "alternate screen with old rows"
)

// spareable are the sequences instead of which viewers may get others: all
// bytes between introducer and final, and the final.
var spareable = regexp.MustCompile(`(?:\x1b\[|\x{9b})([\x00-\x17\x19\x1c-\x3f\x7f]*)([JSTLMbIZh])`)

// passes reports whether got is want but for what viewers are spared, and why
// they are.
func passes(want, got []byte) (why []string, ok bool) {
	m := spareable.FindSubmatchIndex(want)
	if m == nil {
		m = []int{len(want), len(want)}
	}
	got, dropped, ok := cutText(got, want[:m[0]])
	for range dropped {
		why = append(why, sparedMarks)
	}
	switch {
	case !ok:
		return nil, false
	case m[0] == len(want):
		return why, len(got) == 0
	}
	sequence, rest := want[m[0]:m[1]], want[m[1]:]
	if after, same := bytes.CutPrefix(got, sequence); same {
		if more, ok := passes(rest, after); ok {
			return append(why, more...), true
		}
	}
	begun := sequence[:len(sequence)-1] // if it was let out it has no effect
	r, _ := utf8.DecodeLastRune(want[:m[0]])
	for _, before := range [][]byte{nil, begun} {
		got, _ := bytes.CutPrefix(got, before)
		if n, reason := instead(got, string(want[m[2]:m[3]]), want[m[4]], r); n > 0 {
			if more, ok := passes(rest, got[n:]); ok {
				return append(append(why, reason), more...), true
			}
		}
	}
	return nil, false
}

// cutText removes text from the beginning of got, which may lack characters
// beyond ASCII: those that found no room in their cell.
func cutText(got, text []byte) (rest []byte, dropped int, ok bool) {
	for len(text) > 0 {
		_, n := utf8.DecodeRune(text)
		switch {
		case bytes.HasPrefix(got, text[:n]):
			got = got[n:]
		case n > 1:
			dropped++
		default:
			return nil, 0, false
		}
		text = text[n:]
	}
	return got, dropped, true
}

var alternate = regexp.MustCompile(`^\?(.*;)?0*(47|1047|1049)(;.*)?$`)

// entersAlternate reports whether DECSET of params enters the alternate screen.
func entersAlternate(params string) bool { return alternate.MatchString(params) }

var controls = regexp.MustCompile(`[\x00-\x1f\x7f]`)

// instead returns how many bytes at the beginning of got may stand for a
// sequence that comes after r, 0 for none, and why.
func instead(got []byte, params string, final byte, r rune) (n int, why string) {
	params = controls.ReplaceAllString(params, "")
	marker := ""
	if final == 'J' && strings.HasPrefix(params, "?") {
		marker, params = params[:1], params[1:]
	}
	first, _, _ := strings.Cut(params, ";")
	first, _, _ = strings.Cut(first, ":")
	count, err := strconv.Atoi(first)
	other := ""
	switch {
	case err != nil && first != "" && final != 'h':
		return 0, ""
	case final == 'J' && count == 1:
		other, why = "\x1b["+marker+"2J", sparedErase
	case final == 'b' && count > 65535 && bytes.HasPrefix(got, []byte("\x1b[65535b")):
		other, why = "\x1b[65535b", sparedCount
	case final == 'h' && entersAlternate(params):
		const twice = "\x1b[?47h\x1b[?47l"
		rest, _ := strings.CutPrefix(string(got), twice)
		again, _, _ := strings.Cut(rest, "h")
		if entersAlternate(strings.TrimPrefix(again, "\x1b[")) {
			other, why = twice+again+"h", sparedEnter
		}
	case final == 'b' && r >= utf8.RuneSelf:
		why = sparedMarks
		if other = "\x1b\\"; bytes.HasPrefix(got, []byte("\x1b[")) {
			other = string(got[:bytes.IndexByte(got, 'b')+1])
		}
	case !strings.ContainsRune("bJh", rune(final)) && count > 1000:
		other, why = fmt.Sprintf("\x1b[1000%c", final), sparedCount
	}
	if !bytes.HasPrefix(got, []byte(other)) {
		return 0, ""
	}
	return len(other), why
}

func TestPasses(t *testing.T) {
	tests := []struct {
		want, got string
		why       string
		ok        bool
	}{
		{"a\x1b[mb", "a\x1b[mb", "", true},
		{"a\x1b[mb", "a\x1b[m", "", false},
		{"a\x1b[m", "a\x1b[mb", "", false},
		{"a\x1b[1Jb", "a\x1b[2Jb", sparedErase, true},
		{"a\x1b[?1;5Jb", "a\x1b[?2Jb", sparedErase, true},
		{"a\x1b[1Jb", "a\x1b[?2Jb", "", false},
		{"a\x1b[Jb", "a\x1b[2Jb", "", false},
		{"a\x1b[1\nJb", "a\x1b[1\n\x1b[2Jb", sparedErase, true},
		{"a\u009b1Jb", "a\x1b[2Jb", sparedErase, true},
		{"\x1b[1001S", "\x1b[1000S", sparedCount, true},
		{"\x1b[1000S", "\x1b[999S", "", false},
		{"\x1b[65536b", "\x1b[65535b", sparedCount, true},
		{"a\x1b[5b", "a\x1b[4b", "", false},
		{"\u115f\x1b[50b", "\u115f\x1b[41b", sparedMarks, true},
		{"\u115f\x1b[b", "\u115f\x1b\\", sparedMarks, true},
		{"e\u0301\u0301", "e\u0301", sparedMarks, true},
		{"ee", "e", "", false},
		{"\x1b[?1;1049ha", "\x1b[?47h\x1b[?47l\x1b[?1;1049ha", sparedEnter, true},
		{"\x1b[?1;104ha", "\x1b[?47h\x1b[?47l\x1b[?1;104ha", "", false},
	}
	for _, test := range tests {
		why, ok := passes([]byte(test.want), []byte(test.got))
		if ok != test.ok || ok && strings.Join(why, " ") != test.why {
			t.Errorf("%q for %q: %t %q, want %t %q", test.got, test.want, ok, why, test.ok, test.why)
		}
	}
}
