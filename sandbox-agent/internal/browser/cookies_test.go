package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/storage"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jar"
)

// keeping is what is kept for all sessions.
type keeping struct {
	mu      sync.Mutex
	cookies []seal.Cookie
}

func (k *keeping) Kept(protocol.SessionID) []seal.Cookie {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.cookies)
}

// push is what a sink does: first it keeps cookies, then it has them set.
func (k *keeping) push(t *testing.T, b *Browser, cookies ...seal.Cookie) map[int]string {
	t.Helper()
	k.mu.Lock()
	for _, c := range cookies {
		k.cookies = append(slices.DeleteFunc(k.cookies, func(old seal.Cookie) bool { return old.ID() == c.ID() }), c)
	}
	k.mu.Unlock()
	refused, err := b.SetCookies(t.Context(), session, cookies)
	if err != nil {
		t.Fatal(err)
	}
	return refused
}

// drop is what a sink does when a pairing ends.
func (k *keeping) drop(t *testing.T, b *Browser, ids ...seal.CookieID) {
	t.Helper()
	k.mu.Lock()
	k.cookies = slices.DeleteFunc(k.cookies, func(old seal.Cookie) bool { return slices.Contains(ids, old.ID()) })
	k.mu.Unlock()
	if err := b.RemoveCookies(t.Context(), session, ids); err != nil {
		t.Fatal(err)
	}
}

// cookieWorld is a world with a Browser whose cookies are kept, and which notes what
// its site is sent.
func cookieWorld(t *testing.T) (*world, *keeping, func() []string) {
	t.Helper()
	needChromium(t)
	w, err := newWorld(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	k := &keeping{}
	w.Keep(k)
	var mu sync.Mutex
	var sent []string
	w.pages["/sent"] = func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent = nil
		for _, c := range r.Cookies() {
			sent = append(sent, c.Name+"="+c.Value)
		}
		slices.Sort(sent)
		fmt.Fprint(rw, "<title>sent</title>")
	}
	return w, k, func() []string {
		w.visit(t, "/sent")
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sent)
	}
}

func cookie(host, name, value string) seal.Cookie {
	return seal.Cookie{
		HostKey: host, Name: name, Value: value, Path: "/", Expires: seal.ToMicros(time.Now().Add(time.Hour)), HasExpires: 1, Persistent: 1,
		Priority: 1, SameSite: -1, SourceScheme: 1, SourcePort: -1,
	}
}

// TestCookies: a page's server is sent what was pushed before the browser's first
// start, while it runs, and after its stop; what a site has changed here stays until
// it is pushed again; what is taken away is gone, also of one that doesn't run.
func TestCookies(t *testing.T) {
	w, k, sent := cookieWorld(t)
	const host = "127.0.0.1"
	want := func(when string, cookies ...string) {
		t.Helper()
		if got := sent(); !slices.Equal(got, cookies) {
			t.Fatalf("%s: sent %v, want %v", when, got, cookies)
		}
	}
	brief := cookie(host, "session", "1")
	brief.HasExpires, brief.Persistent, brief.Expires = 0, 0, 0
	k.push(t, w.Browser, cookie(host, "before", "1"), brief)
	want("before the first start", "before=1", "session=1")
	hidden := cookie(host, "running", "1")
	hidden.HTTPOnly = 1
	k.push(t, w.Browser, hidden)
	want("while it runs", "before=1", "running=1", "session=1")
	if shown := w.evaluate(t, "document.cookie"); strings.Contains(shown, "running") || !strings.Contains(shown, "before=1") {
		t.Errorf("the page reads %q", shown)
	}
	w.evaluate(t, `document.cookie = "before=2; max-age=3600; path=/"`)
	stop := func() {
		t.Helper()
		if err := w.Stop(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	k.push(t, w.Browser, cookie(host, "stopped", "1"))
	want("after a stop", "before=2", "running=1", "session=1", "stopped=1")
	stop()
	k.push(t, w.Browser, cookie(host, "before", "3"))
	k.drop(t, w.Browser, cookie(host, "stopped", "").ID())
	want("pushed again, and dropped", "before=3", "running=1", "session=1")
	k.drop(t, w.Browser, brief.ID(), hidden.ID())
	want("dropped while it runs", "before=3")
}

// TestCookieKinds: each kind of cookie is in Chromium as it was pushed, and one that
// it refuses spoils no other.
func TestCookieKinds(t *testing.T) {
	w, k, sent := cookieWorld(t)
	sent() // starts it
	var all []seal.Cookie
	for _, site := range []int64{-1, 0, 1, 2} {
		for _, host := range []string{"a.example", ".a.example"} {
			c := cookie(host, fmt.Sprint("site", site), "ü\"x")
			c.SameSite, c.Secure, c.SourceScheme, c.SourcePort, c.Priority, c.HTTPOnly = site, 1, 2, 443, (site+3)%3, site&1
			all = append(all, c)
		}
	}
	host, secure, port := cookie("b.example", "__Host-a", "1"), cookie(".b.example", "__Secure-a", "1"), cookie("b.example", "port", "1")
	host.Secure, host.SourceScheme, host.SourcePort = 1, 2, 8443
	secure.Secure, secure.SourceScheme, secure.SourcePort = 1, 2, -1
	port.SourcePort, port.Path = 8080, "/deep/er"
	nameless := cookie("c.example", "", "alone")
	all = append(all, host, secure, port, nameless, cookie("[::1]", "six", "6"))
	for _, c := range all {
		if err := c.Check(time.Now()); err != nil {
			t.Errorf("%+v: %v", c.ID(), err)
		}
	}
	bad := cookie(".co.uk", "suffix", "1") // Chromium makes it a cookie of one host
	all = append(all, bad)
	refused := k.push(t, w.Browser, all...)
	if len(refused) != 1 || refused[len(all)-1] == "" {
		t.Errorf("refused %v", refused)
	}
	var has storage.GetCookiesResult
	if err := w.chromium().Call(t.Context(), storage.GetCookies.Method, storage.GetCookiesParams{}, &has); err != nil {
		t.Fatal(err)
	}
	for _, c := range all[:len(all)-1] {
		found := false
		for _, got := range has.Cookies {
			if jar.Same(c, got) {
				found = true
				p := jar.Param(c)
				if got.Priority != p.Priority || got.SourceScheme != p.SourceScheme || got.SourcePort != p.SourcePort || !c.Session() && got.Expires-float64(p.Expires) > 1 {
					t.Errorf("%+v is %+v", c.ID(), got)
				}
			}
		}
		if !found {
			t.Errorf("%+v isn't there", c.ID())
		}
	}
}

// BenchmarkSetCookies sets 3,000 cookies with all checks and, in turn, by one bare
// call: the time of both, and what the rest adds.
func BenchmarkSetCookies(b *testing.B) {
	w, err := newWorld(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	if _, err := w.call("browser_start"); err != nil {
		b.Fatal(err)
	}
	c := w.chromium()
	var ours, bare time.Duration
	for n := 0; b.Loop(); n++ {
		var cookies []seal.Cookie
		for i := range 3000 {
			k := cookie(fmt.Sprintf(".s%d.example", i%100), fmt.Sprint("c", i), fmt.Sprintf("%064d", n))
			k.Secure, k.SourceScheme, k.SourcePort = 1, 2, 443
			cookies = append(cookies, k)
		}
		for turn := range 2 {
			began := time.Now()
			if (turn+n)%2 == 0 {
				if refused, err := w.SetCookies(b.Context(), session, cookies); err != nil || len(refused) > 0 {
					b.Fatal(len(refused), err)
				}
				ours += time.Since(began)
			} else {
				params := storage.SetCookiesParams{}
				for _, k := range cookies {
					params.Cookies = append(params.Cookies, jar.Param(k))
				}
				if err := c.Call(b.Context(), storage.SetCookies.Method, params, nil); err != nil {
					b.Fatal(err)
				}
				bare += time.Since(began)
			}
		}
	}
	b.ReportMetric(ours.Seconds()*1e3/float64(b.N), "ms/checked")
	b.ReportMetric(bare.Seconds()*1e3/float64(b.N), "ms/bare")
	b.ReportMetric(ours.Seconds()/bare.Seconds(), "ratio")
}
