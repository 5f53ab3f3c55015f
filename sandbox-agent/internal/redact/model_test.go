package redact

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// setOf returns a set of patterns, without any other form of them.
func setOf(patterns ...string) *Set {
	var arena []byte
	var all []pattern
	for _, p := range patterns {
		all = append(all, pattern{uint32(len(arena)), uint32(len(p)), HoldFrom})
		arena = append(arena, p...)
	}
	return &Set{newIndex(arena, all)}
}

// A model is the obvious way to mask plain text: it looks for each pattern
// everywhere.
type model []string

// within reports which bytes of text are in a pattern, its first skip bytes
// aside.
func (m model) within(text string, skip int) []bool {
	in := make([]bool, len(text))
	for _, p := range m {
		for i := 0; i+len(p) <= len(text); i++ {
			if text[i:i+len(p)] == p {
				for j := i + skip; j < i+len(p); j++ {
					in[j] = true
				}
			}
		}
	}
	return in
}

// begun returns where the longest beginning of a pattern starts that text ends
// with, if that has HoldFrom bytes.
func (m model) begun(text string) (at int, ok bool) {
	for i := 0; i+HoldFrom <= len(text); i++ {
		for _, p := range m {
			if len(p) > len(text)-i && strings.HasPrefix(p, text[i:]) {
				return i, true
			}
		}
	}
	return 0, false
}

func (m model) mask(text string) string {
	in := m.within(text, 0)
	if at, ok := m.begun(text); ok {
		for i := at; i < len(text); i++ {
			in[i] = true
		}
	}
	out := []byte(text)
	for i := range out {
		if in[i] {
			out[i] = '*'
		}
	}
	return string(out)
}

// drawPlain draws patterns and a text in which they are likely.
func drawPlain(t *rapid.T) (model, string) {
	alphabet := rapid.SampledFrom([]string{"a", "ab", "abc "}).Draw(t, "alphabet")
	letters := rapid.SampledFrom([]byte(alphabet))
	word := func(least, most int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(letters, least, most), func(b []byte) string { return string(b) })
	}
	m := model(rapid.SliceOfN(word(MinSecretBytes, 14), 1, 8).Draw(t, "patterns"))
	for range rapid.IntRange(0, 2).Draw(t, "longer") {
		p := rapid.SampledFrom(m).Draw(t, "beginning")
		m = append(m, p+word(1, 6).Draw(t, "rest"))
	}
	part := rapid.Custom(func(t *rapid.T) string {
		p := rapid.SampledFrom(m).Draw(t, "pattern")
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return p
		case 1:
			return p[:rapid.IntRange(1, len(p)).Draw(t, "cut")]
		}
		return word(0, 9).Draw(t, "text") + rapid.SampledFrom([]string{"", "x"}).Draw(t, "other")
	})
	return m, strings.Join(rapid.SliceOfN(part, 1, 8).Draw(t, "parts"), "")
}

// TestPlainIsAsTheModel checks what is masked of plain text, whole and in
// pieces, and what is held after each piece.
func TestPlainIsAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, text := drawPlain(t)
		s := setOf(m...)
		if got, want := string(s.Mask([]byte(text))), m.mask(text); got != want {
			t.Fatalf("Mask(%q) = %q, want %q; patterns %q", text, got, want, m)
		}
		m.checkFind(t, s, text)
		r := s.NewStream()
		var out []byte
		for i := 0; i < len(text); {
			n := rapid.IntRange(1, len(text)-i).Draw(t, "piece")
			out = r.Write(out, []byte(text[i:i+n]))
			i += n
			m.checkHeld(t, r, text[:i], out)
		}
		m.checkOut(t, text, string(r.Flush(out)))
	})
}

func (m model) checkFind(t *rapid.T, s *Set, text string) {
	in := m.within(text, 0)
	got := make([]bool, len(text))
	for _, f := range s.Find(nil, []byte(text)) {
		for i := f.From; i < f.To; i++ {
			got[i] = true
		}
	}
	if !slices.Equal(got, in) {
		t.Fatalf("Find(%q) = %v, want %v; patterns %q", text, got, in, m)
	}
	if got, want := s.MatchesIn([]byte(text)), slices.Contains(in, true); got != want {
		t.Fatalf("MatchesIn(%q) = %v; patterns %q", text, got, m)
	}
}

// checkHeld checks that of the beginning of a pattern at most HoldFrom-1 bytes
// are out, and that nothing is held without reason.
func (m model) checkHeld(t *rapid.T, r *Stream, text string, out []byte) {
	if len(out)+r.Held() != len(text) {
		t.Fatalf("%d bytes out and %d held of %d", len(out), r.Held(), len(text))
	}
	at, ok := m.begun(text)
	if ok {
		for i := at + HoldFrom - 1; i < len(out); i++ {
			if out[i] != '*' {
				t.Fatalf("%q of %q is out, patterns %q", out, text, m)
			}
		}
	}
	before, stray := m.begun(text[:len(text)-1])
	if stray && (!ok || before < at) {
		at, ok = before, true
	}
	if r.Held() > 0 && (!ok || len(out) < at) {
		t.Fatalf("%d bytes of %q held, patterns %q", r.Held(), text, m)
	}
}

// checkOut checks a whole output, of which the first bytes of a secret may have
// been out before it was known to be one.
func (m model) checkOut(t *rapid.T, text, out string) {
	must, may, whole := m.within(text, HoldFrom-1), m.within(text, 0), m.mask(text)
	if len(out) != len(text) {
		t.Fatalf("%q became %q", text, out)
	}
	for i := range out {
		masked := out[i] == '*' && text[i] != '*'
		if must[i] && !masked || masked && !may[i] && whole[i] != '*' || !masked && out[i] != text[i] {
			t.Fatalf("%q became %q, whole %q, patterns %q", text, out, whole, m)
		}
	}
}

// TestAfterContext goes on behind text that is out.
func TestAfterContext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, text := drawPlain(t)
		s := setOf(m...)
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		r := s.NewStreamAfter([]byte(text[:cut]))
		out := string(r.Flush(r.Write(nil, []byte(text[cut:]))))
		var used Stream
		first := used.Write(nil, []byte(text[:cut]))
		first = used.Use(first, s)
		if len(first) != cut {
			t.Fatalf("Use let %q out", first)
		}
		if got := string(used.Flush(used.Write(nil, []byte(text[cut:])))); got != out {
			t.Fatalf("Use: %q, want %q", got, out)
		}
		in := m.within(text, 0)
		for i := cut; i < len(text); i++ {
			if in[i] && out[i-cut] != '*' {
				t.Fatalf("%q after %q became %q, patterns %q", text[cut:], text[:cut], out, m)
			}
		}
	})
}
