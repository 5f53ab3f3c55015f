package redact_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct {
		secrets []string
		want    error
		index   string
	}{
		{[]string{"long enough", "shrt"}, redact.ErrTooShort, "secret 1:"},
		{[]string{""}, redact.ErrTooShort, "secret 0:"},
		{[]string{"          "}, redact.ErrTooShort, "secret 0:"},
		{[]string{"\t\n\t\n\t\n\t\n\t\n"}, redact.ErrTooShort, "secret 0:"},
		{[]string{"1234567\n\n"}, redact.ErrTooShort, "secret 0:"},
		{[]string{"\x1b[31;42;1m1234567"}, redact.ErrTooShort, "secret 0:"},
		{make([]string, redact.MaxSecrets+1), redact.ErrTooMany, "10001 of at most 10000"},
		{[]string{strings.Repeat("x", redact.MaxSetBytes), "12345678"}, redact.ErrTooMany, "2097152"},
	} {
		s, err := redact.Compile(c.secrets)
		if s != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.index) {
			t.Errorf("Compile = %v, %v; want %v of %s", s, err, c.want, c.index)
		}
		for _, secret := range c.secrets {
			if err != nil && len(secret) > 2 && strings.Contains(err.Error(), secret) {
				t.Errorf("the error %q tells a secret", err)
			}
		}
	}
}

func TestEmptySetMasksNothing(t *testing.T) {
	for _, s := range []*redact.Set{nil, compile(t)} {
		text := []byte("ghp_\xff\x1b[")
		r := s.NewStreamAfter(text)
		if out := r.Write(nil, text); !bytes.Equal(out, text) || r.Held() != 0 {
			t.Errorf("Write = %q, %d held", out, r.Held())
		}
		if out := r.Flush(nil); len(out) > 0 {
			t.Errorf("Flush = %q", out)
		}
		if got := s.Mask(text); &got[0] != &text[0] || s.MatchesIn(text) || s.Find(nil, text) != nil || !s.Empty() || s.MaxBytes() != 0 {
			t.Errorf("an empty set finds something")
		}
	}
}

func TestMaskReturnsTheTextItself(t *testing.T) {
	s := compile(t, token, password)
	text := []byte(strings.Repeat("nothing here\n", 10000))
	if got := s.Mask(text); &got[0] != &text[0] || len(got) != len(text) {
		t.Error("a text without secrets was copied")
	}
	text = fmt.Appendf(text, "%s\n%s\n", token, text)
	if got := s.Mask(text); len(got) != len(text) || bytes.Contains(got, []byte(token[:8])) || !bytes.Contains(got, []byte(strings.Repeat("*", len(token))+"\n")) {
		t.Error("a secret in a long text was not masked")
	}
}

// TestHeld follows what is held after each Write.
func TestHeld(t *testing.T) {
	const short, long = "Kx7#mQ2v", "Kx7#mQ2vPPPPzzzz"
	type step struct {
		in, out string
		held    int
	}
	for name, steps := range map[string][]step{
		"three bytes":            {{"> Kx7", "> Kx7", 0}, {"!", "!", 0}},
		"ruled out":              {{"> Kx7#", "> ", 4}, {"mQ", "", 6}, {"!", "Kx7#mQ!", 0}, {" ", " ", 0}},
		"ruled out late":         {{"Kx7#mQ2vPP", "********", 2}, {"x", "", 3}, {" ", "PPx ", 0}},
		"complete":               {{"Kx7#mQ2", "", 7}, {"v", "********", 0}},
		"longer":                 {{"Kx7#mQ2v", "********", 0}, {"PP", "", 2}, {"PPzzz", "", 7}, {"z.", "********.", 0}},
		"longer ruled out":       {{"Kx7#mQ2vPPP", "********", 3}, {"$ ", "PPP$ ", 0}},
		"prompt behind it":       {{"Kx7#mQ2v$", "********$", 0}},
		"two in a row":           {{"Kx7#mQ2vKx7#", "********", 4}, {"mQ2v", "********", 0}},
		"sequences":              {{"\x1b[1mKx7#\x1b[m\r\n", "\x1b[1m", 9}, {"mQ2v", "****\x1b[m\r\n****", 0}},
		"erased":                 {{"Kx7#", "", 4}, {"x", "Kx7#x", 0}, {"\b", "\b", 0}, {"mQ2v", "****", 0}},
		"erased late":            {{"Kx7#mQ2vPP", "********", 2}, {"x", "", 3}, {"\b", "", 4}, {"PPzzzz", "***\b******", 0}},
		"another begins":         {{"Kx7#Kx7", "Kx7#Kx7", 0}, {"#", "", 1}, {"mQ2v", "*****", 0}},
		"another began":          {{"Kx7#m", "", 5}, {"Z", "K", 5}, {"Z", "", 6}, {"ZZ.", "********.", 0}},
		"string ends":            {{"\x1b]0;Kx7#m", "\x1b]0;", 5}, {"\a", "Kx7#m\a", 0}},
		"cut character":          {{"\xe2", "", 1}, {"\x82", "", 2}, {"\xac", "€", 0}},
		"cut character, no more": {{"Kx7#\xe2", "", 5}, {"x", "Kx7#\xe2x", 0}, {"y", "y", 0}},
	} {
		r := compile(t, short, long, "x7#mZZZZ").NewStream()
		for i, s := range steps {
			if out := string(r.Write(nil, []byte(s.in))); out != s.out || r.Held() != s.held {
				t.Errorf("%s, %d: Write(%q) = %q, %d held; want %q, %d", name, i, s.in, out, r.Held(), s.out, s.held)
			}
		}
	}
}

func TestFlushMasksTheBeginning(t *testing.T) {
	s := compile(t, token)
	for in, want := range map[string]string{
		"> ghp_Z":           "> *****",
		"> ghp":             "> ghp",
		"ghp_\x1b[1mZx\r\n": "****\x1b[1m**\r\n",
		"ghp_!":             "ghp_!",
		"ghp_\xe2":          "****\xe2",
	} {
		r := s.NewStream()
		if got := string(r.Flush(r.Write(nil, []byte(in)))); got != want || r.Held() != 0 {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		if got := string(s.Mask([]byte(in))); got != want {
			t.Errorf("Mask(%q) = %q, want %q", in, got, want)
		}
		if got := string(r.Write(nil, []byte(token))); got != strings.Repeat("*", len(token)) {
			t.Errorf("a Write after Flush: %q", got)
		}
	}
}

func TestUseJudgesAnew(t *testing.T) {
	a, b := compile(t, "alpha-alpha-alpha"), compile(t, "beta-beta-beta", "alpha-and-more")
	r := a.NewStream()
	out := r.Write(nil, []byte("beta-beta alpha-a"))
	if string(out) != "beta-beta " || r.Held() != 7 {
		t.Fatalf("%q out, %d held", out, r.Held())
	}
	if out = r.Use(nil, b); len(out) != 0 || r.Held() != 7 {
		t.Errorf("Use: %q out, %d held", out, r.Held())
	}
	if out = r.Write(nil, []byte("nd-more")); string(out) != strings.Repeat("*", 14) || r.Matches() != 1 {
		t.Errorf("a secret that was held: %q, %d matches", out, r.Matches())
	}
	r.Write(nil, []byte(" beta-"))
	if out = r.Use(nil, a); string(out) != "beta-" {
		t.Errorf("Use let %q out", out)
	}
	r.Write(nil, []byte("bet"))
	r.Use(nil, b)
	if out = r.Write(nil, []byte("a-beta.")); string(out) != "******." {
		t.Errorf("a secret that began in what is out: %q", out)
	}
	if out = r.Use(nil, nil); len(out) != 0 || r.Matches() != 2 {
		t.Errorf("Use(nil): %q, %d matches", out, r.Matches())
	}
	if out = r.Write(nil, []byte("beta-beta-beta")); string(out) != "beta-beta-beta" {
		t.Errorf("no set: %q", out)
	}
}

// TestHeldIsBounded writes megabytes of sequences within a secret.
func TestHeldIsBounded(t *testing.T) {
	s := compile(t, token)
	r := s.NewStream()
	out := r.Write(nil, []byte(token[:10]))
	for range 64 << 10 {
		out = r.Write(out, []byte("\x1b[1;38;5;196m\x1b[K"))
		if r.Held() > s.MaxBytes()+64<<10 {
			t.Fatalf("%d bytes held", r.Held())
		}
	}
	out = r.Write(out, []byte(token[10:]+"."))
	shown := strings.NewReplacer("\x1b[1;38;5;196m", "", "\x1b[K", "").Replace(string(out))
	if want := strings.Repeat("*", len(token)) + "."; shown != want || r.Overruns() != 1 || r.Held() != 0 {
		t.Errorf("%q, %d overruns, %d held", shown, r.Overruns(), r.Held())
	}
}

func TestMatchesCounts(t *testing.T) {
	r := compile(t, "ABCDEFGH", "EFGHIJKL", "ABCDEFGHIJKLMN").NewStream()
	for i, in := range []string{"ABCDEFGH ABCDEFGH", ".ABCDEFGHIJKL.", "\x1b]0;EFGHIJKL\a"} {
		r.Write(nil, []byte(in))
		if want := []uint64{2, 3, 4}[i]; r.Matches() != want {
			t.Errorf("%d matches after %q, want %d", r.Matches(), in, want)
		}
	}
}

// TestSingleBytesAreSeenBothWays prints what some terminals take for a control.
func TestSingleBytesAreSeenBothWays(t *testing.T) {
	s := compile(t, "ABCDEFGH")
	for in, want := range map[string]string{
		"\x9bABCDEFGH.":              "\x9b********.",
		"ABCD\x9dEFGH.":              "****\x9d****.",
		"ABCD\x9b31mEFGH.":           "****\x9b31m****.",
		"AB\x9dx\aCD\x9b1mEF\x9cGH.": "**\x9dx\a**\x9b1m**\x9c**.",
		"AB\x90CD\x90EFGH.":          "**\x90**\x90****.",
	} {
		for how, chunk := range map[string]int{"whole": 100, "after three bytes": 3} {
			r := s.NewStream()
			out := r.Write(nil, []byte(in[:min(chunk, len(in))]))
			leading := len(out)
			out = r.Flush(r.Write(out, []byte(in[min(chunk, len(in)):])))
			if chunk > 3 {
				leading = 0
			}
			if string(out[leading:]) != want[leading:] || r.Matches() != 1 {
				t.Errorf("%q, %s, became %q, %d matches", in, how, out, r.Matches())
			}
		}
		if found := s.Find(nil, []byte(in)); len(found) != 1 || !s.MatchesIn([]byte(in)) {
			t.Errorf("Find(%q) = %v", in, found)
		}
	}
}

// TestHoldBeginsBehindThreeBytes types forms of secrets a byte at a time and looks
// where they begin to be held.
func TestHoldBeginsBehindThreeBytes(t *testing.T) {
	set := compile(t, token, "\u00e4\u00f6-password")
	for form, want := range map[string]int{
		token:                        4,
		"6768705f5a7838":             7,
		"67:68:70:5f:5a":             10,
		"67 68 70 5f 5a":             10,
		"6768 705f 5a78":             8,
		"0x67, 0x68, 0x70, 0x5f, ":   21,
		`\x67\x68\x70\x5f\x5a`:       15,
		"Z2hwX1p4ODFr":               5,
		"%67%68%70%5F%5A":            10,
		`\u0067\u0068\u0070\u005f`:   19,
		"\u00e4\u00f6-password":      4,
		`\u00e4\u00f6-password`:      7,
		`\303\244\303\266-password`:  9,
		`M-CM-$M-CM-6-password`:      7,
		"%C3%A4%C3%B6-password":      10,
		"C:\\Users> " + token:        14,
		"c3a4c3b62d70":               7,
		"<c3><a4><c3><b6>-passwords": 9,
	} {
		r := set.NewStream()
		n := 0
		for ; n < len(form) && r.Held() == 0; n++ {
			r.Write(nil, []byte(form[n:n+1]))
			if r.Held() > 0 && form[n] >= 0x80 && want > n+1 {
				r.Write(nil, []byte(form[n+1:n+2])) // a cut character
				n++
			}
		}
		if n != want {
			t.Errorf("%q is held from byte %d on, want %d", form, n, want)
		}
	}
}

// TestFound27NothingJoins: bytes that are no UTF-8 stay what they are where the
// characters without width between them are taken out.
func TestFound27NothingJoins(t *testing.T) {
	const secret = "S3cr3t/Key+0"
	s := compile(t, secret)
	for between, joints := range map[string]int{ // how many there must be
		"\xcc\u0301\x88": 1, "\xe2\u0301\x80\x8b": 1, "\xe2\x80\u0301\u0300\x8b": 1, "\xc2\u0301\x9b": 1,
		"\xf0\u0301\x9f\u0301\x98\u0301\x80": 3,
	} {
		p := []byte(secret[:6] + between + secret[6:] + ".")
		want := countWide(p)
		for piece := 1; piece <= len(p); piece++ {
			r := s.NewStream()
			var out []byte
			for i := 0; i < len(p); i += piece {
				out = r.Write(out, p[i:min(len(p), i+piece)])
			}
			out = r.Flush(out)
			if got := countWide(out); got != want || bytes.Contains(out, []byte("\u0301")) || bytes.Count(out, []byte("\u2060")) != joints {
				t.Errorf("%q in pieces of %d became %q, %d characters and not %d", p, piece, out, got, want)
			}
		}
		if masked := s.Mask(p); countWide(masked) != want {
			t.Errorf("%q masked is %q", p, masked)
		}
	}
}
