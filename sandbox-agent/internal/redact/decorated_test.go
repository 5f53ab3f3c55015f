package redact

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A screenText is the obvious terminal: the characters that are shown, each with
// where it stands in the input.
type screenText struct {
	shown []byte
	at    []int
}

// A drawing is decorated text, built so that what a terminal shows of it is
// known, and which of its bytes belong to secrets.
type drawing struct {
	patterns model
	in       strings.Builder
	must     map[int]int // where a byte of a secret stands: the least place in it
	may      [][2]int    // where secrets are, with all that is between
	visible  map[int]bool
	erased   bool // the rest of a line: two within HoldFrom bytes are not found
}

func (d *drawing) print(s *screenText, c byte) {
	d.visible[d.in.Len()] = true
	s.shown, s.at = append(s.shown, c), append(s.at, d.in.Len())
	d.in.WriteByte(c)
	for _, p := range d.patterns {
		if !strings.HasSuffix(string(s.shown), p) {
			continue
		}
		at := s.at[len(s.at)-len(p):]
		d.may = append(d.may, [2]int{at[0], d.in.Len()})
		for i, a := range at {
			if old, ok := d.must[a]; !ok || i > old {
				d.must[a] = i
			}
		}
	}
}

func (d *drawing) erase(s *screenText) {
	s.shown, s.at = s.shown[:len(s.shown)-1], s.at[:len(s.at)-1]
}

// sequences print nothing.
var sequences = []string{"", "", "", "\x1b[31m", "\x1b[K", "\x1b(B", "\x1b7", "\x1b[3\x1b[m", "\x1b[1\x18", "\r\n", "\n", "\x0f", "\x00",
	"\x7f", "\u009b1m", "\x9b1m", "\xff", "\x1b[1;2H"}

// decorate writes text with decorations. Within a string there are few.
func (d *drawing) decorate(t *rapid.T, s *screenText, text string, inside bool) {
	for i := range len(text) {
		switch k := rapid.IntRange(0, 13).Draw(t, "decoration"); {
		case inside && k > 2:
		case inside:
			d.in.WriteString(rapid.SampledFrom([]string{"\x00", "\n", "\x7f"}).Draw(t, "control"))
		case k == 0: // an erased character
			d.print(s, rapid.SampledFrom([]byte("abc#")).Draw(t, "erased"))
			d.in.WriteString("\b")
			d.erase(s)
		case k == 1: // overstruck
			d.print(s, text[i])
			d.in.WriteString("\b")
			d.erase(s)
		case k == 2: // a line editor
			d.print(s, ' ')
			d.in.WriteString("\r")
			d.erase(s)
		case k == 3: // a string with a text of its own
			intro := rapid.SampledFrom([]string{"\x1b]0;", "\x1bP", "\x1b_", "\u009d2;"}).Draw(t, "intro")
			end := rapid.SampledFrom([]string{"\x1b\\", "\a", "\u009c"}).Draw(t, "end")
			d.in.WriteString(intro)
			d.decorate(t, new(screenText), rapid.SampledFrom([]string{"", "#"}).Draw(t, "gap")+rapid.SampledFrom(d.patterns).Draw(t, "title"), true)
			d.in.WriteString(end)
		case k == 4 && !d.erased: // a line editor before a wide character
			d.erased = true
			d.print(s, ' ')
			d.in.WriteString(rapid.SampledFrom([]string{"\x1b[K", "\x1b[0K", "\x1b[m\x1b[K", "\x9bK"}).Draw(t, "erasure"))
			d.erase(s)
		case k < 9:
			d.in.WriteString(rapid.SampledFrom(sequences).Draw(t, "sequence"))
		}
		d.print(s, text[i])
	}
}

func drawDecorated(t *rapid.T) *drawing {
	patterns, text := drawPlain(t)
	for i, p := range patterns {
		patterns[i] = strings.ReplaceAll(p, " ", "d")
	}
	d := &drawing{patterns: patterns, must: map[int]int{}, visible: map[int]bool{}}
	d.decorate(t, new(screenText), strings.ReplaceAll(text, " ", "d"), false)
	return d
}

// TestDecoratedIsAsTheModel masks text with all kinds of things inside.
func TestDecoratedIsAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkDecorated(t, drawDecorated(t)) })
}

func checkDecorated(t *rapid.T, d *drawing) {
	s, in := setOf(d.patterns...), d.in.String()
	end := "!\r\n" // so that no beginning of a secret is masked there
	check := func(how, out string, skip int) {
		out, ok := strings.CutSuffix(out, end)
		if !ok || len(out) != len(in) {
			t.Fatalf("%s: %q became %q, patterns %q", how, in, out, d.patterns)
		}
		for i := range in {
			switch place, must := d.must[i]; {
			case must && place >= skip && out[i] != '*':
				t.Fatalf("%s: %q became %q: byte %d is out, patterns %q", how, in, out, i, d.patterns)
			case out[i] != in[i] && (out[i] != '*' || !d.visible[i] || !d.within(i)):
				t.Fatalf("%s: %q became %q: byte %d is no secret, patterns %q", how, in, out, i, d.patterns)
			}
		}
	}
	check("whole", string(s.Mask([]byte(in+end))), 0)
	r := s.NewStream()
	var out []byte
	for p := in + end; len(p) > 0; {
		n := rapid.IntRange(1, min(len(p), 9)).Draw(t, "piece")
		out = r.Write(out, []byte(p[:n]))
		p = p[n:]
	}
	check("pieces", string(r.Flush(out)), strayFrom-1)
}

func (d *drawing) within(i int) bool {
	for _, m := range d.may {
		if m[0] <= i && i < m[1] {
			return true
		}
	}
	return false
}
