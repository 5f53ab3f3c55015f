package screen

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// hide returns what masks each of words.
func hide(words ...string) func([]byte, func(int, int)) {
	return func(text []byte, mask func(from, to int)) {
		for _, w := range words {
			for at := 0; ; {
				i := bytes.Index(text[at:], []byte(w))
				if i < 0 {
					break
				}
				mask(at+i, at+i+len(w))
				at += i + len(w)
			}
		}
	}
}

func TestMask(t *testing.T) {
	for _, test := range []struct {
		output string
		n      int
		want   string // of the screen and what is above, the alternate screen first
	}{
		{"a secret here", 1, "a ****** here\n"},
		{"\x1b[31msec\x1b[1mret", 1, "******\n"},
		{strings.Repeat("x", 17) + "secret", 1, strings.Repeat("x", 17) + "******\n"},     // wrapped
		{strings.Repeat("x", 17) + "sec\r\nret", 1, strings.Repeat("x", 17) + "******\n"}, // a line of the full width
		{"sec\r\nret", 0, "sec\nret\n"},
		{"\x1b[2;4Hret\x1b[2;1Hsec", 1, "\n******\n"},
		{"secret\r\n" + strings.Repeat("line\r\n", 9), 1, "******\n" + strings.Repeat("line\n", 9)},
		{"secret\x1b[?1049hsecret", 2, "******\n"},
		{"漢字secret漢字", 1, "漢字******漢字\n"},
		{"ge漢im", 1, "******\n"},
		{"\x1b]2;my secret\aok", 1, "ok\n"},
		{"\x1b]8;id=secret;http://secret/\alink\x1b]8;;\a", 2, "link\n"},
		{"ok\x1b]2;my secret", 1, "ok\n"},
	} {
		s := New(20, 6)
		s.Write(nil, nil, []byte(test.output))
		if n := s.Mask(hide("secret", "ge漢im")); n != test.n {
			t.Errorf("%q: masked %d, want %d", test.output, n, test.n)
		}
		text := string(s.grid.Clusters.AppendRows(nil, s.grid.Normal, 0, s.grid.Normal.Cols, nil))
		if got := strings.TrimRight(text, "\n") + "\n"; got != test.want {
			t.Errorf("%q: got %q, want %q", test.output, got, test.want)
		}
		keyframe := s.AppendKeyframe(nil, 1000)
		if bytes.Contains(keyframe, []byte("secret")) {
			t.Errorf("%q: the keyframe %q has it", test.output, keyframe)
		}
		late := New(20, 6)
		late.Write(nil, nil, keyframe)
		if got, want := dump(late), dump(s); got != want && !strings.Contains(test.output, "]8;") {
			t.Errorf("%q: the keyframe gives\n%s\nwant\n%s", test.output, got, want)
		}
		if n := s.Mask(hide("secret", "ge漢im")); n != 0 {
			t.Errorf("%q: masked again", test.output)
		}
	}
}

// TestMaskHidden: what a narrower size hides is masked as well, and doesn't part
// what is seen.
func TestMaskHidden(t *testing.T) {
	s := New(20, 3)
	s.Write(nil, nil, []byte("\x1b[?1049h\x1b[1;15Hsecret\x1b[3;1Hxxxxxxxsec\x1b[2;1Hxxxxxxxxxxhidden"))
	s.Resize(10, 3)
	s.Write(nil, nil, []byte("\x1b[2;8Hsec\x1b[3;1Hret"))
	if n := s.Mask(hide("secret")); n != 2 {
		t.Errorf("masked %d", n)
	}
	s.Resize(20, 3)
	if got := []string{s.grid.Line(0), s.grid.Line(1), s.grid.Line(2)}; got[0] != strings.Repeat(" ", 14)+"******" || got[1] != "xxxxxxx***hidden" || got[2] != "***xxxxsec" {
		t.Errorf("got %q", got)
	}
}

func TestNewText(t *testing.T) {
	s := New(20, 4)
	s.Write(nil, nil, []byte("one\r\ntwo\r\nthree\r\nfour\r\nfive\x1b[1;1H"))
	if got := string(s.grid.AppendNewText(nil)); !s.grid.TakeTangled() || got != "one\ntwo\nthree\nfour\nfive\n" {
		t.Errorf("got %q", got)
	}
	s.Write(nil, nil, []byte("\x1b[4;1H\r\nsix"))
	if got := string(s.grid.AppendNewText(nil)); got != "two\nthree\nfour\nfive\nsix\n" {
		t.Errorf("then %q", got) // the line that scrolled off, and the screen
	}
}

// TestWideAtTheEdge: the last column, in which a wide character had no room, is
// no part of the text, whatever is there.
func TestWideAtTheEdge(t *testing.T) {
	for _, test := range []struct{ output, want string }{
		{strings.Repeat("x", 19) + "漢字", strings.Repeat("x", 19) + "漢字\n"},
		{strings.Repeat("x", 19) + " 漢字", strings.Repeat("x", 19) + "漢字\n"},           // by a line editor
		{strings.Repeat("x", 19) + " \r\n漢字", strings.Repeat("x", 19) + "漢字\n"},       // and line by line
		{strings.Repeat("x", 19) + "漢字\x1b[1;20H ", strings.Repeat("x", 19) + "漢字\n"}, // put there later
		{strings.Repeat("x", 19) + " x", strings.Repeat("x", 19) + " x\n"},
		{strings.Repeat("x", 20) + "漢", strings.Repeat("x", 20) + "漢\n"},
	} {
		s := New(20, 4)
		s.Write(nil, nil, []byte(test.output))
		if got := strings.TrimRight(string(s.grid.AppendNewText(nil)), "\n") + "\n"; got != test.want {
			t.Errorf("%q: got %q, want %q", test.output, got, test.want)
		}
	}
}

// TestMaskAsIn: the screen of masked output has asterisks where that of all
// output shows a secret, unless it differs there in more than asterisks.
func TestMaskAsIn(t *testing.T) {
	const secret = "ab-cd-ef"
	for _, test := range []struct {
		raw, masked string
		n           int
		want        string
	}{
		{"x " + secret, "x " + secret, 1, "x ********"},
		{"x " + secret, "x **-cd-ef", 1, "x ********"},
		{"x " + secret, "x *****-ef", 0, "x *****-ef"}, // as few may pass
		{"x " + secret, "x ********", 0, "x ********"},
		{"x " + secret, "x **-cd-e", 0, "x **-cd-e"}, // the rest is held
		{"x " + secret, "x", 0, "x"},
		{secret + "\n", secret, 1, "********"}, // the line feed is held
		{"\n\n\n\n" + secret, secret, 0, secret},
		{strings.Repeat("x", 16) + secret, strings.Repeat("x", 16) + "**" + secret[2:], 1, strings.Repeat("x", 16) + "********"},
		{secret + "\r\n\n\n\n\nlast", secret[:8] + "\r\n\n\n\n\nlast", 1, "********\n\n\n\n\nlast"},
		{"\x1b[?1049h" + secret, "\x1b[?1049h" + secret, 1, ""},
		{"\x1b[?1049h\x1b[H" + secret, secret, 0, secret},
		{"e\u0301" + secret, "e\u0301" + secret, 1, "e\u0301********"},
	} {
		for _, whole := range []bool{false, true} {
			raw, s := New(20, 4), New(20, 4)
			raw.Write(nil, nil, []byte(test.raw))
			s.Write(nil, nil, []byte(test.masked))
			raw.grid.AppendNewText(nil)
			if n := s.MaskAsIn(raw, whole, few(3, hide(secret))); n != test.n {
				t.Errorf("%q, %q: masked %d", test.raw, test.masked, n)
			}
			if got := strings.TrimRight(string(s.grid.Clusters.AppendRows(nil, s.grid.Normal, 0, 20, nil)), "\n"); got != test.want {
				t.Errorf("%q, %q: got %q", test.raw, test.masked, got)
			}
			if s.MaskAsIn(raw, whole, few(3, hide(secret))) != 0 {
				t.Errorf("%q, %q: masked again", test.raw, test.masked)
			}
		}
	}
}

// few allows n characters of each text that secrets finds to be seen.
func few(n int, secrets func([]byte, func(from, to int))) func([]byte, func(from, to, few int)) {
	return func(text []byte, mask func(from, to, few int)) {
		secrets(text, func(from, to int) { mask(from, to, n) })
	}
}

// TestMaskAsInClusters: numbers of clusters differ between screens.
func TestMaskAsInClusters(t *testing.T) {
	const secret = "pa\u0301sswo\u0301rd"
	raw, s := New(20, 4), New(20, 4)
	raw.Write(nil, nil, []byte("\x1b[2;1Ho\u0301a\u0301\x1b[1;1H"+secret))
	s.Write(nil, nil, []byte(secret+"\x1b[2;1Ho\u0301a\u0301"))
	raw.grid.AppendNewText(nil)
	if n := s.MaskAsIn(raw, false, few(3, hide(secret))); n != 1 || s.grid.Line(0) != "********" {
		t.Errorf("masked %d, got %q", n, s.grid.Line(0))
	}
}

func TestTangled(t *testing.T) {
	for _, test := range []struct {
		output string
		want   bool
	}{
		{"plain\r\nlines\r\n\tand \x1b[31mcolours\x1b[m\x1b[K\x1b]2;title\x1b\\\r\n", false},
		{strings.Repeat("long ", 30) + "\r\n$ ", false},
		{"\x1b[?2004h$ ", false},
		{"50%\r60%", true},
		{"a\bb", true},
		{"\x1b[A", true}, {"\x1b[5D", true}, {"\x1b[H", true}, {"\x1b[3G", true}, {"\x1b8", true}, {"\x1bM", true},
		{"\x1b[P", true}, {"\x1b[@", true}, {"\x1b[L", true}, {"\x1b[2b", true}, {"\x1b[?1049h", true}, {"\x1b[4h", true},
		{"\x1b[?7l", true}, {"a\x00b", true}, {"\x1b(0q", true},
		{strings.Repeat("x", 20) + "\r\nx", true}, // of the full width
	} {
		s := New(20, 6)
		s.Write(nil, nil, []byte(test.output))
		if got := s.grid.TakeTangled(); got != test.want {
			t.Errorf("%q: %v", test.output, got)
		}
	}
	s := New(20, 6)
	s.Write(nil, nil, []byte("$ ls\b\bcd"))
	for _, want := range []bool{true, true} { // for as long as it is in that line
		if got := s.grid.TakeTangled(); got != want {
			t.Error(got)
		}
	}
	s.Write(nil, nil, []byte("\r\nnext "))
	for _, want := range []bool{true, false} {
		if got := s.grid.TakeTangled(); got != want {
			t.Errorf("in a new line: %v", got)
		}
	}
}

// TestTangledOrNot: a screen that was never tangled reads as the output did.
func TestTangledOrNot(t *testing.T) {
	pieces := []string{
		"abc", "secret ", "\r\n", "\n", "\r", "\t", "\x1b[31m", "\x1b[K", "\x1b[J", "\b", "\x1b[A", "\x1b[C", "\x1b[2D", "漢", "e\u0301",
		"\x1b[2P", "\x1b[3@", "\x1b[L", "\x1b[H", "\x1b7", "\x1b8", "\x1b[?7l", "\x1b[4h", "\x1bM", "\x1bE", "\x0b", "\x00", "\x1b[5X",
		"\x1b[2;4r", "\x1b[?1049h", "\x1b[?1049l", "\x1b[b", "\x1b(0", "\x1b(B", "0123456789", strings.Repeat("wide ", 5), "\x1b[1K", "\x1b[S", "\x1b[T", "\x1bc",
	}
	rapid.Check(t, func(t *rapid.T) {
		s := New(20, 6)
		var printed strings.Builder // without what was erased at the end of it
		for range rapid.IntRange(0, 30).Draw(t, "pieces") {
			p := rapid.SampledFrom(pieces).Draw(t, "piece")
			s.Write(nil, nil, []byte(p))
			if p == "\x1bc" {
				printed.Reset()
				s.grid.TakeTangled()
			}
			if p[0] != '\x1b' {
				printed.WriteString(p)
			}
			if p[0] == '\x1b' && strings.Contains("KJX", p[len(p)-1:]) && s.grid.Returned {
				return // it erases what was printed
			}
			if p == "\x1b[1K" {
				return // so does this
			}
		}
		if s.grid.TakeTangled() {
			return
		}
		got := squeeze(string(s.grid.Clusters.AppendRows(nil, s.grid.Normal, 0, s.grid.Normal.Cols, nil)))
		if want := squeeze(printed.String()); got != want {
			t.Fatalf("reads %q, printed %q", got, want)
		}
	})
}

// squeeze returns text without blanks and controls.
func squeeze(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// BenchmarkNewText reads a full screen.
func BenchmarkNewText(b *testing.B) {
	for _, size := range [][2]int{{80, 24}, {200, 50}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			s := New(size[0], size[1])
			s.Write(nil, nil, bytes.Repeat([]byte("text of a program "), 1000))
			var text []byte
			for b.Loop() {
				text = s.grid.AppendNewText(text[:0])
			}
			b.SetBytes(int64(len(text)))
		})
	}
}
