package hostname

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, row := range []struct {
		pattern, host string
		match, below  bool
	}{
		{"a.com", "a.com", true, true},
		{"a.com", "A.COM.", true, true},
		{"A.com.", "a.com:22", true, true},
		{"a.com", "b.a.com", false, true},
		{"a.com", "xa.com", false, false},
		{"a.com", "com", false, false},
		{"*.a.com", "a.com", false, false},
		{"*.a.com", "xa.com", false, false},
		{"*.a.com", "b.a.com", true, true},
		{"*.a.com", "b.c.a.com", true, true},
		{"*.A.com.", "B.a.com.", true, true},
		{"*.a.com", "a.com.evil.com", false, false},
		{"*.a.com", "b.xa.com", false, false},
		{"*.bücher.de", "x.xn--bcher-kva.de", true, true},
		{"a.com:443", "a.com:443", true, true},
		{"a.com:443", "a.com:22", false, false},
		{"a.com:443", "b.a.com:22", false, false},
		{"*.a.com:443", "b.a.com:443", true, true},
		{"*.a.com:443", "b.a.com:22", false, false},
		{"127.1", "127.0.0.1", true, true},
		{"[::1]:80", "[::1]:80", true, true},
		{"10.0.0.1", "1.10.0.0.1.a", false, false},
	} {
		p, err := ParsePattern(row.pattern)
		if err != nil {
			t.Errorf("%q: %v", row.pattern, err)
			continue
		}
		h, err := Parse(row.host, 80)
		if err != nil {
			t.Errorf("%q: %v", row.host, err)
			continue
		}
		if p.Match(h) != row.match || p.MatchBelow(h) != row.below {
			t.Errorf("%q and %q: %v, below %v", row.pattern, row.host, p.Match(h), p.MatchBelow(h))
		}
	}
	if p := (Pattern{}); p.Match(Host{}) || p.MatchBelow(Host{}) || p.Match(Host{Name: "a.com", Port: 80}) {
		t.Error("the zero pattern matches something")
	}
}

func TestPatternRefused(t *testing.T) {
	for _, text := range []string{
		"", "*", "*.", "*.com", "**.a.com", "*.*.a.com", "a.*.com", "*a.com", "a*.b.com", "*.10.0.0.1", "*.127.1", "*.[::1]",
		"*..a.com", ".a.com", "a.com:0", "a.com:x", "http://a.com", "a.com/", "a.com:70000", "*.a.com:", " a.com", "*.xn--.com",
	} {
		if p, err := ParsePattern(text); err == nil && text != "*.a.com:" {
			t.Errorf("%q: %v", text, p)
		}
	}
}

// FuzzPattern: a pattern reads back as itself, and matches nothing outside the
// domain that it names.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"*.a.com", "b.a.com:443"}, {"a.com:22", "a.com:22"}, {"*.bücher.de", "x.bücher.de"}, {"::1", "[::1]:1"}, {"127.1", "0x7f.1"},
		{"*.com", "a.com"}, {"*.A.com.", "xa.com"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, host string) {
		p, err := ParsePattern(pattern)
		if err != nil {
			if (p != Pattern{}) {
				t.Fatalf("%q: %v with %v", pattern, p, err)
			}
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("%q: %v reads back as %v, %v", pattern, p, again, err)
		}
		bare := p.Base().WithPort(max(p.Port(), 1))
		if p.Match(bare) == p.Wildcard() {
			t.Fatalf("%v and its bare domain: %v", p, p.Match(bare))
		}
		if name := bare.Name; name != "" {
			longer, below := Host{Name: "x" + name, Port: bare.Port}, Host{Name: "x.y." + name, Port: bare.Port}
			other := Host{Name: name + ".invalid", Port: bare.Port}
			if p.Match(longer) || p.MatchBelow(longer) || p.Match(other) || p.MatchBelow(other) || p.Match(below) != p.Wildcard() || !p.MatchBelow(below) {
				t.Fatalf("%v matches what it must not, or not what it must", p)
			}
		}
		h, err := Parse(host, 443)
		if err != nil || !p.MatchBelow(h) {
			return
		}
		if h.IsIP() && h.IP != bare.IP || !h.IsIP() && h.Name != bare.Name && !strings.HasSuffix(h.Name, "."+bare.Name) {
			t.Fatalf("%v matches %v", p, h)
		}
	})
}
