package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// webClient serves the pages of seed 002's web client, unchanged, and before a
// relay what they ask: as one of ours, whose cookie that is. The account's pages of
// the program that they belong to aren't ours; what it asks of them is answered
// here. The published pages believe that they need a token of that program's, which
// doesn't get to the relay, as in the mode for a platform.
func webClient(t *testing.T, s *Stack, pages string, user User) (origin string) {
	t.Helper()
	relay, err := url.Parse(user.Base)
	must(t, err)
	grant, err := user.Grant(within(t), s.Ready.SessionID)
	must(t, err)
	ask, err := http.NewRequestWithContext(within(t), http.MethodPost, user.Base+"/app-session", nil)
	must(t, err)
	ask.Header.Set("Authorization", "Bearer "+grant)
	ask.Header.Set("Origin", user.Base)
	answer, err := http.DefaultClient.Do(ask)
	must(t, err)
	answer.Body.Close()
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusOK || len(cookies) != 1 {
		t.Fatalf("POST /app-session: %s, %d cookies", answer.Status, len(cookies))
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(relay)
		query := r.Out.URL.Query()
		query.Del("token")
		r.Out.URL.RawQuery = query.Encode()
		r.Out.Header.Del("Authorization")
		r.Out.Header.Set("Cookie", cookies[0].Name+"="+cookies[0].Value)
		if r.Out.Header.Get("Origin") != "" {
			r.Out.Header.Set("Origin", user.Base)
		}
	}}
	files := http.FileServer(http.Dir(pages))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/api/user/onboarding-status":
			fmt.Fprint(w, `{"success":true,"hasCompletedOnboarding":true}`)
		case path == "/api/plugins":
			fmt.Fprint(w, `{"plugins":[{"name":"charts","displayName":"Charts","enabled":true,"entry":"index.js","icon":"icon.svg"}]}`)
		case path == "/api/plugins/charts/assets/index.js":
			fmt.Fprint(w, pluginPage)
		case path == "/ws", path == "/shell", strings.HasPrefix(path, "/plugin-ws/"), strings.HasPrefix(path, "/api/"):
			forward.ServeHTTP(w, r)
		default:
			if _, err := os.Stat(filepath.Join(pages, filepath.FromSlash(path))); err != nil { // a page of the client's own
				r.URL.Path = "/"
			}
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// words are, in JavaScript, the numbers of the words in the page that a stand-in has
// said, in their order there.
const words = `[...document.body.innerText.matchAll(/(?:^|\s)(\d+):\d{19}/g)].map((m) => m[1]).join()`

// TestWebClient: the web client of seed 002, as it is published, talks with a coding
// agent. FAIRLEAD_WEB_CLIENT is the folder that `make test-webclient` has put it in.
func TestWebClient(t *testing.T) {
	dir := os.Getenv("FAIRLEAD_WEB_CLIENT")
	if dir == "" {
		t.Skip("make test-webclient gets and runs it")
	}
	s := talkStack(t, "")
	origin := webClient(t, s, filepath.Join(dir, "dist"), s.Ready.User("alice"))
	open := func(name, url string) *window {
		w := openWindow(t, name, url, 1280, 900, chromedp.Flag("disable-3d-apis", true)) // its terminal is text then
		eval[any](w, `localStorage.setItem('auth-token', 'its own')`)
		eval[any](w, `location.replace(`+fmt.Sprintf("%q", url)+`)`)
		w.until(`document.querySelector('textarea')?.checkVisibility()`)
		return w
	}
	say := func(w *window, text string) {
		w.run(chromedp.Focus(chromedp.CSS("textarea")))
		w.write(text)
		w.press("Enter", 13)
	}
	shows := func(w *window, text string) { w.until(fmt.Sprintf(`document.body.innerText.includes(%q)`, text)) }

	w := open("webclient", origin+"/")
	say(w, "say:good morning to you")
	w.until(`document.body.innerText.split('\n').includes('good morning to you') && location.pathname.startsWith('/session/')`)
	w.until(`document.body.innerText.split('\n').filter((line) => line === 'good morning to you').length === 1`)

	// It subscribes again while words come: none of them is there twice.
	say(w, "deltas:40@20\nsay:that was all")
	w.until(`document.body.innerText.split('\n').includes('that was all')`)
	w.until(words + ` === [...Array(40).keys()].join()`)
	w.shoot("webclient")

	// It asks, and what is allowed is done. Another window sees all of it.
	say(w, `ask:Write {"file_path":"asked.txt","content":"done"}`)
	w.until(`[...document.querySelectorAll('button')].some((b) => b.innerText.trim().startsWith('Allow'))`)
	other := open("webclient-other", eval[string](w, `location.href`))
	shows(other, "that was all")
	other.until(`[...document.querySelectorAll('button')].some((b) => b.innerText.trim().startsWith('Allow'))`)
	eval[any](w, `[...document.querySelectorAll('button')].find((b) => b.innerText.trim().startsWith('Allow')).click()`)
	for _, each := range []*window{w, other} {
		each.until(`![...document.querySelectorAll('button')].some((b) => b.innerText.trim().startsWith('Allow'))`)
	}

	// It stops what runs.
	say(w, "deltas:10000@20")
	w.until(words + `.split(',').length > 45`)
	shows(other, "deltas:10000@20")
	w.press("Escape", 27)
	w.until(`[...document.querySelectorAll('button')].every((b) => b.innerText.trim() !== 'STOP')`)
	say(w, "say:stopped it is")
	w.until(`document.body.innerText.split('\n').includes('stopped it is')`)
	once := `((all) => new Set(all.slice(40)).size === all.length - 40)(` + words + `.split(','))`
	w.until(once)
	after := eval[string](w, words)

	// What was said is there after a reload, once.
	w.run(chromedp.Reload())
	w.until(`document.body.innerText.split('\n').includes('stopped it is')`)
	if got := eval[string](w, words); got != after {
		t.Errorf("after a reload words %.200s, before %.200s", got, after)
	}
	w.shoot("webclient-again")
	webClientShell(t, s, w)
	webClientPlugin(t, s, w)
}
