package op

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMaskTabURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://user:pw@a.example/?token=s&q=1#top": "https://a.example/?token=[REDACTED]&q=1#top",
		"HTTP://a.example":                           "HTTP://a.example",
		"file:///etc/passwd":                         "",
		"chrome-extension://abcdefgh/panel.html":     "",
		"javascript:alert(1)":                        "",
		"about:blank":                                "",
		"https://":                                   "",
		"":                                           "",
		"https://a.example/" + strings.Repeat("ä", 2000): "https://a.example/" + strings.Repeat("ä", (MaxTabURL-18)/2),
	} {
		if got := MaskTabURL(raw); got != want {
			t.Errorf("%.60q: %.80q, want %.80q", raw, got, want)
		}
	}
	if got := CleanTabTitle("a\x1b]0;b\x07\tc\xff"); got != "a]0;bc" {
		t.Errorf("%q", got)
	}
}

// Whatever a tab is called, what comes out is bounded, printable, and stays the same
// when it is masked again: relay and sandbox both do it.
func FuzzMaskTabURL(f *testing.F) {
	for _, seed := range []string{"https://u:p@a.example/?token=s#key=v", "http://[::1]:80/?a=b&&=c;;", "https://a/%?key=%zz", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		once := MaskTabURL(raw)
		if len(once) > MaxTabURL || !utf8.ValidString(once) || strings.ContainsFunc(once, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q", once)
		}
		if again := MaskTabURL(once); len(once) < MaxTabURL && again != once {
			t.Errorf("%q, then %q", once, again)
		}
		title := CleanTabTitle(raw)
		if len(title) > MaxTabTitle || CleanTabTitle(title) != title {
			t.Errorf("%q", title)
		}
		if (&PanelTab{URL: once, Title: title}).Check() != nil {
			t.Error("refused")
		}
	})
}
