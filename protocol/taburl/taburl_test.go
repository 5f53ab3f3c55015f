package taburl

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestMask(t *testing.T) {
	for address, want := range map[string]string{
		"": "", "about:blank": "about:blank", "https://a/?": "https://a/?", "https://a/?key=": "https://a/?key=", "a b": "a b",
		"https://a.example/x?q=1#top":                     "https://a.example/x?q=1#top",
		"https://a/?token=s&q=1":                          "https://a/?token=[REDACTED]&q=1",
		"https://a/?API_KEY=s;Access-Token=t":             "https://a/?API_KEY=[REDACTED]",
		"https://a/?q=1;key=s;t#key=?&;key=#":             "https://a/?q=1;key=[REDACTED]#key=[REDACTED]&;key=[REDACTED]",
		"https://a/?api_key=x&apikey=y&passwd=z&pwd=a=b":  "https://a/?api_key=[REDACTED]&apikey=[REDACTED]&passwd=[REDACTED]&pwd=[REDACTED]",
		"https://a/?code=1&zipcode=2&SIG=3&design=4":      "https://a/?code=[REDACTED]&zipcode=2&SIG=[REDACTED]&design=4",
		"https://a/?%74oken=x&to%6bEn%zz=y&+code%20=1":    "https://a/?%74oken=[REDACTED]&to%6bEn%zz=[REDACTED]&+code%20=[REDACTED]",
		"https://a/?to\tk\nen=x\x00y":                     "https://a/?token=[REDACTED]",
		"https://a/#access_token=s&state=1":               "https://a/#access_token=[REDACTED]&state=1",
		"https://a/#/route?bearer=x#y#code=z":             "https://a/#/route?bearer=[REDACTED]",
		"https://a/#/route#code=z":                        "https://a/#/route#code=[REDACTED]",
		"https://a/b?c?secret=x":                          "https://a/b?c?secret=[REDACTED]",
		"https://u:p@a.example/x@y":                       "https://a.example/x@y",
		"https://u@h@a/":                                  "https://a/",
		"https://u@a?x@y":                                 "https://a?x@y",
		"https:u:p@a/":                                    "https:a/",
		`HTTPS:\\u:p@a\b@c`:                               `HTTPS:\\a\b@c`,
		"https:///u:p@a/":                                 "https:///a/",
		"https://@/u:p@a/":                                "https:///a/",
		" https://u:p@a/ ":                                "https://a/",
		"//u:p@a/":                                        "//a/",
		"redis://u:p@a/0":                                 "redis://a/0",
		"blob:https://u:p@a/1":                            "blob:https://a/1",
		"view-source:https://u:p@a/?key=1":                "view-source:https://a/?key=[REDACTED]",
		"file:///home/u@h/x":                              "file:///home/u@h/x",
		"mailto:u@a.example":                              "mailto:u@a.example",
		"a.example:80/x@y":                                "a.example:80/x@y",
		"https://a.example/\x00\x1b[2J?x\n=1\xff\u0085":   "https://a.example/[2J?x=1",
		"https://a/" + strings.Repeat("ä", 2000) + "#key": "https://a/" + strings.Repeat("ä", 2000) + "#key",
	} {
		if got := Mask(address); got != want {
			t.Errorf("%.60q: %.80q, want %.80q", address, got, want)
		}
	}
}

// Long addresses of the worst kind take no longer than others.
func TestLinear(t *testing.T) {
	for name, part := range map[string]string{"users": "@/", "slashes": `\`, "schemes": "a:", "parameters": "token=&", "escapes": "%41"} {
		long := Mask("https:" + strings.Repeat(part, 1<<20/len(part))) // if it took the square, an hour
		if again := Mask(long); again != long {
			t.Errorf("%s: %.40q becomes %.40q", name, long, again)
		}
		Mask(strings.Repeat(part, 1<<20/len(part)))
	}
}

// However bad an address is, what comes out is printable, stays the same when it is
// masked again, and has neither a password nor a secret for whoever parses it.
func FuzzMask(f *testing.F) {
	for _, seed := range []string{
		"https://u:p@a.example/?token=b#password=c", "a?b#c?key=d", "http://[::1]:80/?a=b&&=c;;", "https://a/%?key=%zz",
		"https://@/u:p@h", `https:\\u@\@h`, "blob:blob:https://u@h", "x://@//u:p@h", "\xff//u@h", "https:u@https:v@w",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		masked := Mask(address)
		if !utf8.ValidString(masked) || strings.ContainsFunc(masked, unicode.IsControl) {
			t.Errorf("%q", masked)
		}
		if again := Mask(masked); again != masked {
			t.Errorf("%q becomes %q and then %q", address, masked, again)
		}
		u, err := url.Parse(masked)
		if err != nil {
			return
		}
		if u.User != nil {
			t.Errorf("%q has a user", masked)
		}
		for _, query := range []string{u.RawQuery, u.EscapedFragment()} {
			values, _ := url.ParseQuery(query)
			for name, all := range values {
				name = name[strings.LastIndexAny(name, "?#")+1:] // a page's own address behind the #
				for _, v := range all {
					if secret(name) && v != "" && v != Hidden {
						t.Errorf("%q: %s is %q", masked, name, v)
					}
				}
			}
		}
	})
}
