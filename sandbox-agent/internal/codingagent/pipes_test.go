package codingagent

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// read returns all lines.
func read(from io.Reader) (all []Line) {
	r := lineReader{from: from}
	for {
		l, err := r.next()
		if err != nil {
			return all
		}
		l.Text = bytes.Clone(l.Text)
		all = append(all, l)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for name, c := range map[string]struct {
		text string
		want []Line
	}{
		"nothing":         {"", nil},
		"empty lines":     {"\n\r\n", []Line{{}, {}}},
		"without an end":  {"one\ntwo", []Line{{Text: []byte("one")}, {Text: []byte("two")}}},
		"half a letter":   {"a\xc3\nb\xf0\x9f", []Line{{Text: []byte("a\uFFFD")}, {Text: []byte("b\uFFFD")}}},
		"as long as any":  {long + "\nx\n", []Line{{Text: []byte(long)}, {Text: []byte("x")}}},
		"longer":          {long + "x\nx\n", []Line{{Dropped: MaxLine + 1}, {Text: []byte("x")}}},
		"long, no end":    {"x\n" + long + long, []Line{{Text: []byte("x")}, {Dropped: 2 * MaxLine}}},
		"long, then text": {long + long + "\n" + long + "\n", []Line{{Dropped: 2 * MaxLine}, {Text: []byte(long)}}},
	} {
		for how, from := range map[string]io.Reader{
			"at once": strings.NewReader(c.text), "halves": iotest.HalfReader(strings.NewReader(c.text)),
		} {
			got := read(from)
			if len(got) != len(c.want) {
				t.Errorf("%s, %s: %d lines, want %d", name, how, len(got), len(c.want))
				continue
			}
			for i, want := range c.want {
				if !bytes.Equal(got[i].Text, want.Text) || got[i].Dropped != want.Dropped {
					t.Errorf("%s, %s: line %d: %.20q %d, want %.20q %d", name, how, i, got[i].Text, got[i].Dropped, want.Text, want.Dropped)
				}
			}
		}
	}
}

// TestLongLineMemory: of a line without an end no more is held than a line may
// have.
func TestLongLineMemory(t *testing.T) {
	r := lineReader{from: io.MultiReader(io.LimitReader(endless{}, 10*MaxLine), strings.NewReader("\nnext\n"))}
	most := 0
	r.from = io.TeeReader(r.from, writerFunc(func(p []byte) (int, error) {
		most = max(most, cap(r.buf))
		return len(p), nil
	}))
	if l, err := r.next(); err != nil || l.Dropped != 10*MaxLine {
		t.Fatalf("%d %v", l.Dropped, err)
	}
	if l, err := r.next(); err != nil || string(l.Text) != "next" {
		t.Fatalf("%q %v", l.Text, err)
	}
	if most > 3*MaxLine {
		t.Errorf("%d bytes are held", most)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// FuzzLines: lines are those of the output, however it arrives.
func FuzzLines(f *testing.F) {
	f.Add([]byte("one\r\n\ntw\xffo"), byte(1))
	f.Add([]byte("\n\n"), byte(2))
	f.Fuzz(func(t *testing.T, text []byte, piece byte) {
		var want []string
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			want = append(want, strings.ToValidUTF8(string(line), "\uFFFD"))
		}
		got := read(pieces{bytes.NewReader(text), int(piece) + 1})
		if len(got) != len(want) {
			t.Fatalf("%d lines, want %d", len(got), len(want))
		}
		for i := range got {
			if string(got[i].Text) != want[i] || !utf8.Valid(got[i].Text) {
				t.Fatalf("%q, want %q", got[i].Text, want[i])
			}
		}
	})
}

// pieces reads at most so many bytes at once.
type pieces struct {
	from io.Reader
	n    int
}

func (p pieces) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), p.n)]) }

// TestTail keeps the end.
func TestTail(t *testing.T) {
	var kept tail
	whole := ""
	for i := range 50 {
		piece := strings.Repeat(string(rune('a'+i%26)), i*37%(2*stderrBytes))
		if n, err := kept.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		whole += piece
		if got, want := string(kept.text()), whole[max(len(whole)-stderrBytes, 0):]; got != want {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
	}
}
