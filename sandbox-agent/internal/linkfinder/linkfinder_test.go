package linkfinder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1_800_000_000, 0)

// found returns what is told of text after a long wait.
func found(text string) []Link {
	var f Finder
	f.Write([]byte(text), start)
	return f.Flush(start.Add(time.Minute))
}

func urls(links []Link) (all []string) {
	for _, l := range links {
		all = append(all, l.URL)
	}
	return all
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"alone", "https://example.com/a", []string{"https://example.com/a"}},
		{"in a sentence", "See (https://example.com/a). Or <http://b.org>!", []string{"https://example.com/a", "http://b.org/"}},
		{"normalized", "HTTPS://Example.COM:443 http://example.com:80/ https://e.com:8443/X", []string{"https://example.com/", "http://example.com/", "https://e.com:8443/X"}},
		{"once", "https://e.com/a https://E.com/a, https://e.com/a", []string{"https://e.com/a"}},
		{"coloured", "\x1b[4mhttps://e\x1b[0;32mxample.com/\x1b[1ma\x1b[0m b", []string{"https://example.com/a"}},
		{"a title and a link's target are no text", "\x1b]0;https://title.com/\a\x1b]8;;https://target.com/\x1b\\text\x1b]8;;\x1b\\", nil},
		{"wrapped (seed 002's test)", "Continue in your browser: https://example.com/authorize?\ncode=abc\x1b[0m", []string{"https://example.com/authorize?code=abc"}},
		{"wrapped over three lines", "https://e.com/a?x=1\r\n  &y=2\r\n  &z=3  \r\n\r\nPaste the code\r\n", []string{"https://e.com/a?x=1&y=2&z=3"}},
		{"wrapped and padded", "https://e.com/aaaa    \r\nbbbb    \r\n> ", []string{"https://e.com/aaaabbbb"}},
		{"moved by the cursor", "https://e.com/aaaa\x1b[5;1Hbbbb\x1b[6;1H", []string{"https://e.com/aaaabbbb"}},
		{"a sentence below", "https://e.com/a\r\nPaste the code here\r\n", []string{"https://e.com/a"}},
		{"a word below", "https://e.com/a\r\nWaiting...\r\n", []string{"https://e.com/a"}},
		{"a question below", "https://e.com/a\r\ncode: ", []string{"https://e.com/a"}},
		{"a prompt below", "https://e.com/a\r\n\x1b[?2004hsandbox@box:/workspace$ ", []string{"https://e.com/a"}},
		{"a ruler below", "https://e.com/a\r\n-------\r\n", []string{"https://e.com/a"}},
		{"a blank line below", "https://e.com/a\r\n\r\nb\r\n", []string{"https://e.com/a"}},
		{"two lines of them", "https://e.com/a\r\nhttps://e.com/b\r\n(https://e.com/c)\r\n", []string{"https://e.com/a", "https://e.com/b", "https://e.com/c"}},
		{"one in the line below", "https://e.com/a\r\n1.https://e.com/b is it\r\n", []string{"https://e.com/a", "https://e.com/b"}},
		{"overwritten", "https://e.com/a\rbbb", []string{"https://e.com/a"}},
		{"after a return and a new line apart", "https://e.com/a\r\x1b[K\nb=1\r\n", []string{"https://e.com/ab=1"}},
		{"other schemes", "ftp://e.com/ javascript:alert(1) file:///etc/passwd https:/e.com", nil},
		{"no host", "https:// https:///a http://?", nil},
		{"a user named", "https://claude.ai@evil.com/ https://u:p@e.com/", nil},
		{"an IPv6 host", "http://[::1]:80/a", []string{"http://[::1]/a"}},
		{"masked", "https://e.com/?token=******** b", []string{"https://e.com/?token=********"}},
		{"in a box", "│ https://e.com/a │", []string{"https://e.com/a"}},
		{"too long", "https://e.com/" + strings.Repeat("a", MaxBytes) + " https://e.com/b", []string{"https://e.com/b"}},
		{"a bad escape", "https://e.com/%zz", nil},
	} {
		if got := urls(found(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAutoOpen: weakness 13. A hint counts before the address and behind it, however
// it is wrapped and coloured, as long as it stands within the window.
func TestAutoOpen(t *testing.T) {
	for text, want := range map[string]bool{
		"https://e.com/": false,
		"Browser didn't open? Use https://e.com/":                                        true,
		"Browser didn’t open? Use https://e.com/":                                        true,
		"Continue in your\r\n  \x1b[1mbrowser: https://e.com/":                           true,
		"https://e.com/ Press Enter\x1b[1Cto open":                                       true,
		"Open this URL:\r\nhttps://e.com/":                                               true,
		"OPEN_URL: https://e.com/":                                                       true,
		"Open this\r\n\r\n\r\nurl " + strings.Repeat("x", Window-20) + " https://e.com/": true,
		"Open this url " + strings.Repeat("é", Window-20) + " https://e.com/":            true,
		"Open this url " + strings.Repeat("x", Window) + " https://e.com/":               false,
		"reopen this curl https://e.com/":                                                false,
	} {
		if got := found(text); len(got) != 1 || got[0].AutoOpen != want {
			t.Errorf("%.60q: %+v, want %t", text, got, want)
		}
	}
}

// TestWaits: an address is told once: when its hint is there, or it has waited for
// that.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name        string
		after       time.Duration
		then        string
		toldAt      time.Duration
		auto        bool
		first, last string
	}{
		{"a hint before it", 0, "", 0, true, "Open this URL: https://e.com/a b", "https://e.com/a"},
		{"no hint", 0, "", HintWait, false, "https://e.com/a b", "https://e.com/a"},
		{"a hint in time", HintWait - 1, "press enter to open", HintWait - 1, true, "https://e.com/a b ", "https://e.com/a"},
		{"a hint too late", HintWait, "press enter to open", HintWait, true, "https://e.com/a b ", "https://e.com/a"},
		{"it isn't over", 0, "", HintWait, true, "Open this URL: https://e.com/a", "https://e.com/a"},
		{"it grows", HintWait - 1, "bc", 2*HintWait - 1, false, "https://e.com/a", "https://e.com/abc"},
		{"its next line comes", HintWait - 1, "bc\n \n", HintWait - 1 + HintWait, false, "https://e.com/a\n", "https://e.com/abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f Finder
			f.Write([]byte(c.first), start)
			if c.then != "" {
				if got := f.Take(start.Add(c.after - 1)); len(got) > 0 {
					t.Fatalf("told early: %+v", got)
				}
				f.Write([]byte(c.then), start.Add(c.after))
			}
			at := start.Add(c.toldAt)
			if due, ok := f.Due(); !ok || due.After(at) {
				t.Errorf("due %v, %t", due.Sub(start), ok)
			}
			if c.toldAt > c.after {
				if got := f.Take(at.Add(-1)); len(got) > 0 {
					t.Errorf("told at %v: %+v", c.toldAt-1, got)
				}
			}
			if got := f.Take(at); len(got) != 1 || got[0] != (Link{c.last, c.auto}) {
				t.Errorf("told %+v", got)
			}
			if _, ok := f.Due(); ok {
				t.Error("something is due still")
			}
			if got := f.Flush(at.Add(time.Hour)); len(got) > 0 {
				t.Errorf("told again: %+v", got)
			}
		})
	}
}

// TestFlood: a list of addresses doesn't hide a login behind it, and memory is
// bounded.
func TestFlood(t *testing.T) {
	var f Finder
	told := 0
	for i := range 2000 {
		f.Write(fmt.Appendf(nil, "https://e.com/%d \n", i), start)
		told += len(f.Take(start.Add(HintWait)))
	}
	if told > burst+1 || f.Dropped() < 1900 || len(f.seen) > maxSeen || len(f.pending) > maxPending {
		t.Errorf("told %d, dropped %d, %d seen, %d pending", told, f.Dropped(), len(f.seen), len(f.pending))
	}
	f.Write([]byte("\nOpen this URL: https://e.com/login \n"), start.Add(HintWait))
	f.Write([]byte("\n"), start.Add(HintWait))
	if got := f.Take(start.Add(HintWait)); !slices.Contains(got, Link{"https://e.com/login", true}) {
		t.Errorf("told %+v", got)
	}
}

func TestReset(t *testing.T) {
	var f Finder
	f.Write([]byte("Open this URL: https://e.com/a. \n\n\x1b]0;"), start)
	if got := f.Take(start); len(got) != 1 {
		t.Fatalf("told %+v", got)
	}
	f.Reset()
	f.Write([]byte("https://e.com/a https://e.com/b "), start)
	if got := f.Flush(start); !slices.Equal(got, []Link{{"https://e.com/b", false}}) {
		t.Errorf("told %+v", got)
	}
}

// FuzzFinder: however output is cut, the same addresses are found; each is one, in
// its normal form, and told once.
func FuzzFinder(f *testing.F) {
	f.Add([]byte("Open this url: https://e.com/a?\r\n b=c\r\n\r\nhttps://e.com/b\x1b[1C"), uint8(3))
	f.Add([]byte("\x1b]8;;http://a\x1b\\http://e.com\rhttp://\nhttps://x{|}^\n1\n"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var whole, cut Finder
		whole.Write(text, start)
		for chunk := range slices.Chunk(text, int(size)+1) {
			cut.Write(chunk, start)
		}
		want, got := whole.Flush(start), cut.Flush(start)
		if !slices.Equal(want, got) {
			t.Fatalf("%+v whole, %+v cut", want, got)
		}
		seen := map[string]bool{}
		for _, l := range got {
			if again, ok := Normalize(l.URL); !ok || again != l.URL || seen[l.URL] || len(l.URL) > 4*MaxBytes {
				t.Errorf("%q is told; normal: %q, %t", l.URL, again, ok)
			}
			seen[l.URL] = true
		}
		if len(whole.scan.url) > MaxBytes+1 || len(whole.scan.more) > MaxBytes {
			t.Errorf("keeps %d and %d bytes", len(whole.scan.url), len(whole.scan.more))
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	var f Finder
	line := []byte("\x1b[32mok\x1b[0m  github.com/fairlead/fairlead/protocol\t0.412s  (cached)\r\n")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		f.Write(line, start)
	}
}
