package hostname

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestSpellingsOfOneHost(t *testing.T) {
	for want, spellings := range map[string][]string{
		"evil.com:443":         {"evil.com", "EVIL.com", "evil.com.", "Evil.Com.:443", "evil.com:", "evil.com:0443", "ｅvil。com", "e\u00advil.com"},
		"xn--bcher-kva.de:443": {"bücher.de", "BÜCHER.de.", "xn--bcher-kva.de", "XN--BCHER-KVA.DE", "bu\u0308cher.de"},
		"xn--strae-oqa.de:443": {"straße.de", "xn--strae-oqa.de"}, // not strasse.de, which is another's
		"localhost:443":        {"localhost", "localhost.", "LOCALHOST"},
		"r3---sn-x.a.com:443":  {"r3---sn-x.a.com"},
		"_a.b_c.com:443":       {"_a.b_c.com"},
		"127.0.0.1:443": {
			"127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "0x7f.1", "0X7F.0.0.1", "0177.1", "0177.0.0.01",
			"2130706433", "0x7f000001", "017700000001", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
			"[0:0:0:0:0:ffff:127.0.0.1]:443", "127。0。0。1", "１２７.0.0.1",
		},
		"169.254.169.254:443": {"169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518", "0251.0376.0251.0376", "[::FFFF:a9fe:a9fe]"},
		"[::1]:443":           {"::1", "[::1]", "[::1]:443", "[0:0:0:0:0:0:0:1]", "0::1", "[::0001]:443"},
		"[2001:db8::a]:443":   {"2001:db8::a", "[2001:DB8:0:0::A]:443"},
	} {
		for _, text := range spellings {
			h, err := Parse(text, 443)
			if err != nil || h.String() != want {
				t.Errorf("%q: %v, %v, want %s", text, h, err, want)
			}
			if again, err := Parse(h.String(), 80); err != nil || again != h {
				t.Errorf("%q: %v reads back as %v, %v", text, h, again, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("a", 63)
	for text, want := range map[string]error{
		"":                          ErrName,
		".":                         ErrName,
		"..":                        ErrName,
		".com":                      ErrName,
		"a..com":                    ErrName,
		"a.com..":                   ErrName,
		"good.com@evil.com":         ErrName,
		"good.com\\@evil.com":       ErrName,
		"evil.com\\.good.com":       ErrName,
		"good.com/../evil.com":      ErrName,
		"evil.com%2f.good.com":      ErrName,
		"evil.com%3f.good.com":      ErrName,
		"evil.com?.good.com":        ErrName,
		"evil.com#.good.com":        ErrName,
		"evil.com／.good.com":        ErrName,
		"a\tb.com":                  ErrName,
		"a b.com":                   ErrName,
		" a.com":                    ErrName,
		"a.com\r\nHost: b.com":      ErrName,
		"a\x00.com":                 ErrName,
		"*.com":                     ErrName,
		"xn--.com":                  ErrName,
		"xn--a-.com":                ErrName,
		"xn--\u00fc.com":            ErrName,
		long + "a.com":              ErrName,
		strings.Repeat(long+".", 4): ErrName,
		strings.Repeat("a.", 600):   ErrName,
		"256.0.0.1":                 ErrAddr,
		"127.0.0.0.1":               ErrAddr,
		"4294967296":                ErrAddr,
		"127.0.0x":                  ErrAddr,
		"08.0.0.1":                  ErrAddr,
		"a.1":                       ErrAddr,
		"a.0x7f":                    ErrAddr,
		"1..1":                      ErrName,
		"[::1":                      ErrAddr,
		"[::1]x":                    ErrAddr,
		"[127.0.0.1]":               ErrAddr,
		"[a.com]":                   ErrAddr,
		"[]":                        ErrAddr,
		"fe80::1%eth0":              ErrAddr,
		"[fe80::1%25eth0]":          ErrAddr,
		"::ffff:127.1":              ErrAddr,
		"a.com:443:1":               ErrAddr,
		"a.com:443abc":              ErrPort,
		"a.com:-1":                  ErrPort,
		"a.com:+1":                  ErrPort,
		"a.com:70000":               ErrPort,
		"a.com:0":                   ErrPort,
		"a.com:000443":              ErrPort,
		"a.com: 443":                ErrPort,
		"a.com:443 ":                ErrPort,
		"a.com:４４３":                 ErrPort,
		"[::1]:http":                ErrPort,
		"[::1]::1":                  ErrPort,
	} {
		if h, err := Parse(text, 443); !errors.Is(err, want) {
			t.Errorf("%q: %v, %v, want %v", text, h, err, want)
		}
	}
}

func TestPortMayBeRequired(t *testing.T) {
	for _, text := range []string{"a.com", "a.com:", "[::1]", "::1:443"} {
		if h, err := Parse(text, 0); !errors.Is(err, ErrPort) {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
	if h, err := Parse("a.com:22", 0); err != nil || h.Port != 22 {
		t.Errorf("%v, %v", h, err)
	}
}

func TestParseName(t *testing.T) {
	for _, text := range []string{"A.com.", "127.1", "::", "[::1]", "1::"} {
		if h, err := ParseName(text); err != nil || h.Port != 0 {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
	for _, text := range []string{"", "a.com:443", "a.com:", "[::1]:443", "[::1]:", "a:"} {
		if h, err := ParseName(text); err == nil {
			t.Errorf("%q: %v", text, h)
		}
	}
}

func TestErrorsQuoteNothing(t *testing.T) {
	for _, text := range []string{"user:hunter22@a.com", "hunter22\x00", "[hunter22", "a.com:hunter22", "[hunter22]", "hunter22ü\x00"} {
		if _, err := Parse(text, 80); err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for text, want := range map[string]bool{
		"localhost": true, "LOCALHOST.": true, "a.localhost": true, "127.8.8.8": true, "127.1": true, "0x7f.1": true,
		"::1": true, "::ffff:127.0.0.1": true,
		"localhost.com": false, "notlocalhost": false, "0.0.0.0": false, "::": false, "128.0.0.1": false, "10.0.0.1": false,
	} {
		h, err := Parse(text, 80)
		if err != nil || h.IsLoopback() != want {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
}

func TestUnder(t *testing.T) {
	for _, row := range []struct {
		host, other string
		want        bool
	}{
		{"a.com", "a.com", true}, {"b.a.com:22", "a.com:443", true}, {"c.b.a.com", "a.com", true},
		{"xa.com", "a.com", false}, {"a.com", "b.a.com", false}, {"com", "a.com", false},
		{"10.0.0.1", "10.0.0.1", true}, {"1.10.0.0.1.x", "10.0.0.1", false}, {"a.com", "10.0.0.1", false},
	} {
		h, err1 := Parse(row.host, 80)
		other, err2 := Parse(row.other, 80)
		if err1 != nil || err2 != nil || h.Under(other) != row.want {
			t.Errorf("%s under %s: %v", row.host, row.other, !row.want)
		}
	}
	if (Host{Name: "a.com"}).Under(Host{}) || (Host{IP: netip.MustParseAddr("::1")}).Under(Host{}) {
		t.Error("below nothing")
	}
}

// FuzzParse: what is parsed reads back as itself, in every spelling, and holds
// nothing but a canonical host.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a.com", "A.com.:443", "[::1]:80", "127.1", "0x7f.1", "bücher.de", "xn--bcher-kva.de", "a@b", "::ffff:1.2.3.4",
		"a.com:70000", "fe80::1%eth0", "１２７.1", "a。b", "xn--a-.com", "1.0x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := Parse(text, 443)
		if err != nil {
			if (h != Host{}) {
				t.Fatalf("%q: %v with %v", text, h, err)
			}
			return
		}
		if h.Port < 1 || h.Port > 65535 || h.IsIP() == (h.Name != "") || h.IP.Zone() != "" || h.IP.Is4In6() {
			t.Fatalf("%q: %+v", text, h)
		}
		if name, err := canonicalName(h.Name); !h.IsIP() && (err != nil || name != h.Name || endsInNumber(name)) {
			t.Fatalf("%q: name %q becomes %q, %v", text, h.Name, name, err)
		}
		spellings := []string{h.String(), strings.ToUpper(h.String())}
		if !h.IsIP() {
			spellings = append(spellings, h.Name+".:"+strings.TrimPrefix(h.String(), h.Name+":"))
			if unicode, err := lookup.ToUnicode(h.Name); err == nil {
				spellings = append(spellings, unicode+":"+strings.TrimPrefix(h.String(), h.Name+":"))
			}
		} else if h.IP.Is4() {
			spellings = append(spellings, Host{IP: netip.AddrFrom16(h.IP.As16()), Port: h.Port}.String())
		}
		for _, spelling := range spellings {
			if len(spelling) > maxInputBytes {
				continue
			}
			if again, err := Parse(spelling, 80); err != nil || again != h {
				t.Fatalf("%q is %v, %q is %v, %v", text, h, spelling, again, err)
			}
		}
	})
}
