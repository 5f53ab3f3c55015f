package screen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

// streams are outputs with most of what there is.
var streams = []string{
	"plain\r\nlines\r\n\ttabs\b\b!",
	"wraps over the end of a row of twenty columns, more than once",
	"\x1b[1;3;4:3;38;5;200;48;2;1;2;3;58;5;9mstyled\x1b[22;24;59m less\x1b[m none",
	"wide 漢字漢字漢字漢字漢字 and e\u0301 👩\u200d💻 🇩🇪🇫🇷 ❤\ufe0f 각",
	"\x1b[?1049h\x1b[2;5r\x1b[?6h\x1b[2;3Halternate\x1b[?25l\x1b[?1h\x1b=\x1b[?2004h",
	"\x1b(0lqqk\x1b(B text \x1b)0\x0exx\x0f\x1b7\x1b[3;3H\x1b[7mx\x1b8y",
	"\x1b]0;a title\a\x1b]8;id=1;http://example.com\x1b\\link\x1b]8;;\x1b\\ \x1b]4;1;#102030\a\x1b]11;rgb:1/2/3\x1b\\",
	"a\x1b[5b\x1b[2;1H\x1b[4hin\x1b[4l\x1b[1\"qprotected\x1b[0\"q not\x1b[?1K",
	"\x1b[?1003;1006;1004h\x1b[5 q\x1b[?2026h\x1b[20h\x1b[?7l no wrap at the right margin here",
	"\x1b[3g\x1b[5G\x1bH\x1b[9G\x1bH\r\ta\tb\x1b#8\x1b[2J\x1b[H\x1bM\x1bD\x1bE.",
	strings.Repeat("history\r\n", 40) + "\x1b[31",
	"\xff\xc3(\xe2\x82\xf0\x9f\u009b3C\u0085x\x1bPq#0\x1b\\\x1b_apc\x1b\\\x1b]2;un",
	"漢\b漢\x1b[2Gx 漢\x1b[@\x1b[P\x1b[2'}\x1b[ @",
}

// dump is all that tests can see of a screen.
func dump(s *Screen) string {
	var b strings.Builder
	y, x := s.Cursor()
	fmt.Fprintln(&b, y, x, s.Modes(), s.MouseMode(), s.Title(), s.grid.Charsets, s.grid.Join, s.grid.Colors)
	for _, buf := range []*grid.Buffer{s.grid.Normal, s.grid.Alt} {
		if buf.Count == 0 {
			continue
		}
		fmt.Fprintln(&b, buf.Top, buf.Bottom, buf.Tabs)
		for y := -buf.Base; y < buf.Rows; y++ {
			l := buf.Line(y)
			fmt.Fprintln(&b, y, l.Wrapped)
			for i := range l.Cells {
				if l.Cells[i] != (grid.Cell{}) {
					fmt.Fprint(&b, i, s.info(&l.Cells[i]), s.grid.Exts.Of(&l.Cells[i]).Underline, s.grid.Exts.Of(&l.Cells[i]).Color, ";")
				}
			}
		}
	}
	return b.String()
}

func TestSplit(t *testing.T) {
	output := strings.Join(streams, "") + "\x1b\\\x1b[6n\x1b[c tail\x1b]10;?\x1b\\"
	whole := New(20, 6)
	out, answers := whole.Write(nil, nil, []byte(output))
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []func() int{func() int { return 1 }, func() int { return 1 + r.IntN(9) }} {
		s := New(20, 6)
		var o, a []byte
		for rest := []byte(output); len(rest) > 0; {
			n := min(size(), len(rest))
			o, a = s.Write(o, a, rest[:n])
			rest = rest[n:]
		}
		if !bytes.Equal(o, out) || !bytes.Equal(a, answers) {
			t.Errorf("seed %d: got %q and %q, want %q and %q", seed, o, a, out, answers)
		}
		if got, want := dump(s), dump(whole); got != want {
			t.Errorf("seed %d: got\n%s\nwant\n%s", seed, got, want)
		}
	}
}

func TestKeyframe(t *testing.T) {
	for _, stream := range streams {
		for _, size := range [][2]int{{20, 6}, {7, 3}} {
			s := New(size[0], size[1])
			out, _ := s.Write(nil, nil, []byte(stream))
			s.Flush(out)
			late := New(size[0], size[1])
			late.Write(nil, nil, []byte("\x1b[?1049h\x1b[?25l\x1b[31mdirt\x1b[20h\x1b]2;dirt\a\x1b]4;7;#fff\a\x1b[2;3r\x1b]un"))
			late.Write(nil, nil, s.AppendKeyframe(nil, 1000))
			for _, more := range []string{"", "\u0301", "\x18\x1b8more\r\n\x1b[2b"} {
				s.Write(nil, nil, []byte(more))
				late.Write(nil, nil, []byte(more))
				if got, want := dump(late), dump(s); got != want {
					t.Errorf("%q at %v, then %q: got\n%s\nwant\n%s", stream, size, more, got, want)
				}
			}
		}
	}
}

func TestKeyframeHistory(t *testing.T) {
	s := New(10, 3)
	for i := range 50 {
		s.Write(nil, nil, fmt.Appendf(nil, "\r\n%d", i))
	}
	for _, n := range []int{0, 1, 10, 1000} {
		late := New(10, 3)
		late.Write(nil, nil, s.AppendKeyframe(nil, n))
		want := min(n, s.HistoryLines())
		if got := late.HistoryLines(); got != want {
			t.Errorf("with %d lines: got %d, want %d", n, got, want)
		}
		if want > 0 && late.HistoryLine(want-1) != s.HistoryLine(s.HistoryLines()-1) {
			t.Errorf("with %d lines: got %q last", n, late.HistoryLine(want-1))
		}
	}
}

func TestQueries(t *testing.T) {
	tests := []struct{ in, out, answers string }{
		{"a\x1b[cb", "ab", "\x1b[?62;22c"},
		{"\x1b[>0c\x1b[=c\x1b[5n", "", "\x1b[>0;276;0c\x1bP!|00000000\x1b\\\x1b[0n"},
		{"abc\x1b[6n\x1b[?6n", "abc", "\x1b[1;4R\x1b[?1;4R"},
		{"\x1b[?7$p\x1b[4$p\x1b[?9999$p", "", "\x1b[?7;1$y\x1b[4;2$y\x1b[?9999;0$y"},
		{"\x1b[>q\x1b[?u\x1b[?996n\x05", "", "\x1bP>|fairlead\x1b\\\x1b[?997;1n"},
		{"\x1b[18t\x1b[19t\x1b[14t\x1b[16t", "", "\x1b[8;6;20t\x1b[9;6;20t"},
		{"\x1bP$qr\x1b\\.", ".", "\x1bP1$r1;6r\x1b\\"},
		{"\x1b[1;31m\x1bP$qm\x1b\\", "\x1b[1;31m", "\x1bP1$r0;1;31m\x1b\\"},
		{"\x1bP$qx\x1b\\", "", "\x1bP0$r\x1b\\"},
		{"\x1bP+q544e;zz\x1b\\", "", "\x1bP1+r544e=787465726d2d323536636f6c6f72\x1b\\\x1bP0+rzz\x1b\\"},
		{"\x1b]11;?\a\x1b]4;1;?\x1b\\", "", "\x1b]11;rgb:0c0c/1010/1414\a\x1b]4;1;rgb:f2f2/7777/7a7a\x1b\\"},
		{"\x1b]10;#123456\a\x1b]10;?\a", "\x1b]10;#123456\a", "\x1b]10;rgb:1212/3434/5656\a"},
		{"\x1b]4;1;#123456;2;?\a", "\x1b]4;1;rgb:1212/3434/5656\a", "\x1b]4;2;rgb:8f8f/c7c7/7f7f\a"},
		{"\x1b]52;c;?\a\x1b]52;c;eA==\a", "\x1b]52;c;eA==\a", ""},
		{"\u009b6n", "", "\x1b[1;1R"},
		{"\x1b]2;title\x1b[6n.", "\x1b]2;title\x1b\\.", "\x1b[1;1R"},   // the ESC ended the title
		{"\x1b[3\x1b[6n.", "\x1b[3\x1b\\.", "\x1b[1;1R"},               // and this a sequence
		{"\x1b[1c\x1b[?15n\x1b[22t", "\x1b[1c\x1b[?15n\x1b[22t", ""},   // no queries
		{"\x1b[2147483647S\x1b[70000b", "\x1b[1000S\x1b[65535b", ""},   // would take viewers hours
		{"\x1b[6;20H\x1b[1J\x1b[?1J", "\x1b[6;20H\x1b[2J\x1b[?2J", ""}, // xterm.js would fail
		{"\x1b[6;20H\x1b[1\x00J", "\x1b[6;20H\x1b[1\x00\x1b[2J", ""},
		{"\u115f\x1b[999b", "\u115f\x1b[41b", ""}, // or run out of memory
		{strings.Repeat("\u115f", 42) + "\x1b[b", strings.Repeat("\u115f", 42) + "\x1b\\", ""},
		{"e" + strings.Repeat("\u0301", 70) + ".", "e" + strings.Repeat("\u0301", 63) + ".", ""},
		{"\x1b]4" + strings.Repeat(";1;#fff", 10_000) + "\a.", "\x1b]4" + strings.Repeat(";1;#fff", 10_000)[:maxString] + "\x18.", ""}, // or take minutes
		{"\x1b]52;c;" + strings.Repeat("eA==", 20_000) + "\a.", "\x1b]52;c;" + strings.Repeat("eA==", 20_000) + "\a.", ""},
		{"\x1b[6;19H\x1b[1J\x1b[5;20H\x1b[1J", "\x1b[6;19H\x1b[1J\x1b[5;20H\x1b[1J", ""},
		{"\xc9\x05\x97\xc9\x1b[c\x97", "\xc9\x00\x97\xc9\x00\x97", "\x1b[?62;22c"},               // no character comes of it
		{"\x1b[" + strings.Repeat("0", 300) + "c", "\x1b[" + strings.Repeat("0", 300) + "c", ""}, // too long
	}
	for _, test := range tests {
		for _, piece := range []int{1000, 1} {
			s := New(20, 6)
			var out, answers []byte
			for rest := []byte(test.in); len(rest) > 0; {
				n := min(piece, len(rest))
				out, answers = s.Write(out, answers, rest[:n])
				rest = rest[n:]
			}
			if string(out) != test.out || string(answers) != test.answers {
				t.Errorf("%q in pieces of %d: got %q and %q, want %q and %q", test.in, piece, out, answers, test.out, test.answers)
			}
		}
	}
}

// TestSpareAlternate proves that viewers' alternate screen gets its rows anew
// when the size has shrunk, and only then.
func TestSpareAlternate(t *testing.T) {
	s := New(20, 6)
	s.Resize(20, 4)
	for i, want := range []string{"\x1b[?1;47l\x1b[?47h\x1b[?47l\x1b[?1;1049h", "\x1b[?1;47l\x1b[?1;1049h"} {
		if out, _ := s.Write(nil, nil, []byte("\x1b[?1;47l\x1b[?1;1049h")); string(out) != want {
			t.Errorf("time %d: let out %q, want %q", i, out, want)
		}
	}
}

// TestRemovedQuery proves that a query leaves the screen as if it had never
// been: what viewers got has nothing there.
func TestRemovedQuery(t *testing.T) {
	asked, plain := New(20, 6), New(20, 6)
	asked.Write(nil, nil, []byte("e\x1b[6n\u0301\x1b[c\x1b[3b"))
	plain.Write(nil, nil, []byte("e\u0301\x1b[3b"))
	if got, want := dump(asked), dump(plain); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestHeld proves that the state is that of what was let out.
func TestHeld(t *testing.T) {
	s := New(20, 6)
	out, _ := s.Write(nil, nil, []byte("ab\x1b[6"))
	if string(out) != "ab" {
		t.Errorf("let out %q", out)
	}
	if k := s.AppendKeyframe(nil, 0); bytes.HasSuffix(k, []byte("\x1b[6")) {
		t.Errorf("the keyframe %q has what is held", k)
	}
	if out, _ = s.Write(nil, nil, []byte("B\xe2\x80")); string(out) != "\x1b[6B" {
		t.Errorf("then let out %q", out)
	}
	if out = s.Flush(nil); string(out) != "\xe2\x80" {
		t.Errorf("flushed %q", out)
	}
}

func TestResize(t *testing.T) {
	type size = [2]int
	tests := []struct {
		output string
		sizes  []size
		want   []string
	}{
		{"one two three four\r\n$ ", []size{{10, 4}}, []string{"one two th", "ree four", "$"}},
		{"one two three four\r\n$ ", []size{{10, 4}, {20, 4}}, []string{"one two three four", "$"}},
		{"the line with the cursor", []size{{10, 4}}, []string{"the line w", "rsor"}},
		{"漢字漢字\r\n", []size{{5, 4}}, []string{"漢字", "漢字"}},
		{"1\r\n2\r\n3\r\n4", []size{{20, 2}}, []string{"3", "4"}},
		{"1\r\n2\r\n3\r\n4", []size{{20, 2}, {20, 4}}, []string{"1", "2", "3", "4"}},
		{"\x1b[?1049hlonger than ten\r\n", []size{{10, 4}}, []string{"longer tha"}},
		{"\x1b[?1049hlonger than ten\r\n", []size{{10, 4}, {20, 4}}, []string{"longer than ten"}},
	}
	for _, test := range tests {
		s := New(20, 4)
		s.Write(nil, nil, []byte(test.output))
		for _, size := range test.sizes {
			s.Resize(size[0], size[1])
		}
		var got []string
		for y := range s.grid.Buf.Rows {
			got = append(got, strings.TrimRight(string([]rune(s.grid.Line(y))[:min(s.grid.Buf.Cols, len([]rune(s.grid.Line(y))))]), " "))
		}
		for len(got) > 0 && got[len(got)-1] == "" {
			got = got[:len(got)-1]
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q at %v: got %q, want %q", test.output, test.sizes, got, test.want)
		}
	}
}

// TestBounds proves that a program can't make a screen hold more and more.
func TestBounds(t *testing.T) {
	s := New(40, 10)
	var out []byte
	for i := range grid.MaxTable + 4096 {
		out, _ = s.Write(out[:0], nil, fmt.Appendf(nil, "a%c%c\x1b]8;;%d\ax\x1b[58;2;%d;%d;%d;4mx", 0x300+i%100, 0x300+i/100%100, i, i&255, i>>8&255, i>>16))
	}
	if n := len(s.grid.Clusters.Text); n > grid.MaxTable {
		t.Errorf("%d clusters", n)
	}
	if n := len(s.grid.Exts.List); n > grid.MaxTable+1 {
		t.Errorf("%d extensions", n)
	}
	if n := len(s.grid.Links.List); n > grid.MaxLinks+2 || s.grid.Links.Bytes > grid.MaxLinkBytes {
		t.Errorf("%d hyperlinks of %d bytes", n, s.grid.Links.Bytes)
	}
	if n := s.grid.Normal.Count; n > 10+grid.MaxHistoryRows {
		t.Errorf("%d rows", n)
	}
	s.Write(nil, nil, append([]byte("\x1b]2;"), bytes.Repeat([]byte("x"), 1<<20)...))
	s.Write(nil, nil, append([]byte("\a\x1b[H\x1bPq"), bytes.Repeat([]byte("x"), 1<<20)...))
	if n := cap(s.str); n > 4*maxString {
		t.Errorf("%d bytes of a string", n)
	}
	s.Write(nil, nil, append([]byte("\x1b\\e"), bytes.Repeat([]byte("\u0301"), 1<<16)...))
	if y, x := s.Cursor(); y != 0 || x != 1 || len(s.Cell(0, 0).Text) > grid.MaxClusterBytes {
		t.Errorf("at %d, %d after %d bytes of marks", y, x, len(s.Cell(0, 0).Text))
	}
}

func FuzzWrite(f *testing.F) {
	for _, stream := range streams {
		f.Add([]byte(stream), uint8(20), uint8(6), uint8(9), uint8(3))
	}
	f.Fuzz(func(t *testing.T, output []byte, cols, rows, newCols, newRows uint8) {
		whole, split := New(int(cols), int(rows)), New(int(cols), int(rows))
		out, answers := whole.Write(nil, nil, output)
		var o, a []byte
		for i := range output {
			o, a = split.Write(o, a, output[i:i+1])
			if len(split.held) > maxHeld || len(split.part) > 3 {
				t.Fatalf("%d bytes held", len(split.held)+len(split.part))
			}
		}
		if !bytes.Equal(out, o) || !bytes.Equal(answers, a) {
			t.Fatalf("in one piece %q and %q, byte by byte %q and %q", out, answers, o, a)
		}
		if got, want := dump(split), dump(whole); got != want {
			t.Fatalf("byte by byte\n%s\nin one piece\n%s", got, want)
		}
		whole.Flush(nil)
		late := New(int(cols), int(rows))
		late.Write(nil, nil, whole.AppendKeyframe(nil, 1000))
		late.Flush(nil)
		if got, want := late.grid.Normal.Base, whole.grid.Normal.Base; got != want || late.grid.Buf.Y != whole.grid.Buf.Y {
			t.Fatalf("a keyframe gives %d lines of history and row %d, want %d and %d", got, late.grid.Buf.Y, want, whole.grid.Buf.Y)
		}
		whole.Resize(int(newCols), int(newRows))
		whole.Write(nil, nil, output)
		whole.AppendKeyframe(nil, 10)
		if b := whole.grid.Buf; b.Count < b.Base+b.Rows || b.X > b.Cols || b.Y >= b.Rows {
			t.Fatalf("%d rows, %d of them above %d; cursor at %d, %d", b.Count, b.Base, b.Rows, b.X, b.Y)
		}
	})
}
