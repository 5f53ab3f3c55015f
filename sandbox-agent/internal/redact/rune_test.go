package redact_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCase58RuneOnBoundary: wherever output is cut into pieces, no character is
// lost or torn by what is masked beside it, and no more of a secret gets out than
// the three bytes that may.
func TestCase58RuneOnBoundary(t *testing.T) {
	const secret = "pässwörd-漢字-👩"
	set := compile(t, secret)
	text := "é漢👩‍💻" + secret + "🇩🇪ö" + secret + secret + "\u0301ü" + secret[:4] + "漢"
	want := regexp.MustCompile(`^é漢👩\x{200d}💻(p|pä)?\*+🇩🇪ö(p|pä)?\*+((p|pä)\*+)?\x{301}?üpäs漢$`)
	if got := string(set.Mask([]byte(text))); !want.MatchString(got) {
		t.Fatalf("masked as a whole: %q", got)
	}
	check := func(pieces ...string) {
		t.Helper()
		s := set.NewStream()
		var all []byte
		for _, p := range pieces {
			all = s.Write(all, []byte(p))
		}
		if all = s.Flush(all); !utf8.Valid(all) || !want.Match(all) {
			t.Fatalf("in pieces %q: %q", pieces, all)
		}
	}
	for i := range len(text) + 1 {
		check(text[:i], text[i:])
		for j := i; j <= len(text); j += 3 {
			check(text[:i], text[i:j], text[j:])
		}
	}
	check(strings.Split(text, "")...)
	var bytes []string
	for i := range len(text) {
		bytes = append(bytes, text[i:i+1])
	}
	check(bytes...)
}
