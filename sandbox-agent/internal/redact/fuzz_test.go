package redact_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// FuzzStream writes any output in any pieces: a secret that stands in it as it is
// never gets out, nothing is lost, and what is held is bounded.
func FuzzStream(f *testing.F) {
	const secret = "S3cr3t/Key+0=ä"
	for _, d := range decorations() {
		in, _ := d.decorate(secret)
		f.Add([]byte(in), uint8(1))
		f.Add([]byte("\x1b]0;"+in+"\a"+in), uint8(7))
	}
	for _, form := range forms(secret) {
		f.Add([]byte("x"+form+"y"), uint8(3))
	}
	s := compile(f, secret, secret+"-longer-one", "Key+0=ä-and-on", "aaaaaaaaaa")
	f.Fuzz(func(t *testing.T, p []byte, piece uint8) {
		r := s.NewStream()
		var out []byte
		for i := 0; i < len(p); i += 1 + int(piece) {
			out = r.Write(out, p[i:min(len(p), i+1+int(piece))])
			if r.Held() > s.MaxBytes()+64<<10 {
				t.Fatalf("%d bytes held", r.Held())
			}
		}
		out = r.Flush(out)
		if countWide(p) != countWide(out) {
			t.Fatalf("%q became %q", p, out)
		}
		if utf8.Valid(p) && !utf8.Valid(out) {
			t.Fatalf("%q became %q, which is no UTF-8", p, out)
		}
		masked := s.Mask(p)
		for _, o := range [][]byte{out, masked} {
			if bytes.Contains(o, []byte(secret)) && !inSequence(p) {
				t.Fatalf("%q became %q", p, o)
			}
		}
		if piece == 0xff && len(p) <= 256 && !bytes.Equal(out, masked) {
			t.Fatalf("%q in one piece became %q, masked %q", p, out, masked)
		}
		if got := s.Mask(masked); s.MatchesIn(got) {
			t.Fatalf("%q is masked, but holds a secret", got)
		}
		spans := s.Find(nil, p)
		if s.MatchesIn(p) != (len(spans) > 0) {
			t.Fatalf("Find(%q) = %v", p, spans)
		}
	})
}

// countWide counts the characters that take cells, and controls.
func countWide(p []byte) int {
	n := 0
	for _, r := range string(p) {
		if !unicode.In(r, widthless...) {
			n++
		}
	}
	return n
}

var widthless = []*unicode.RangeTable{unicode.Mn, unicode.Me, unicode.Cf, unicode.Zl, unicode.Zp,
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector}

// inSequence reports whether the first characters of a secret may be part of a
// sequence.
func inSequence(p []byte) bool {
	return bytes.IndexFunc(p, func(r rune) bool { return r == 0x1b || r >= 0x80 && r < 0xa0 }) >= 0
}

// FuzzCompile makes sets of any secrets and masks each in all its own forms.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{token, password, pemKey, "short", "        ", "12345678", "\x1b[31mred and blue", "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7", "0000000\x9d\a00", "\"\"\"\"\"\"\"\"", strings.Repeat("ab", 50)} {
		f.Add(s, "another one")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		s, err := redact.Compile([]string{a, b})
		if err != nil {
			if len(a) > 8 && strings.Contains(err.Error(), a) {
				t.Fatalf("the error %q tells a secret", err)
			}
			return
		}
		if !utf8.ValidString(a) || strings.ContainsFunc(a, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd }) {
			return
		}
		for name, form := range forms(a) {
			if !s.MatchesIn([]byte("> " + form + ".")) {
				t.Fatalf("%s of %q is not found: %q", name, a, form)
			}
		}
	})
}
