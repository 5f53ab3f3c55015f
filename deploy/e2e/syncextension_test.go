package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// siteName is the site that a person is signed in at. A name below localhost is this
// machine for each of the two browsers.
const siteName = "site.localhost"

// granting copies an extension, with a permission that Chrome would ask the person for
// as she adds the site: a headless browser has nobody to ask.
func granting(t *testing.T, dir string) string {
	t.Helper()
	granted := filepath.Join(t.TempDir(), "extension")
	must(t, os.CopyFS(granted, os.DirFS(dir)))
	path := filepath.Join(granted, "manifest.json")
	data, err := os.ReadFile(path)
	must(t, err)
	var manifest map[string]any
	must(t, json.Unmarshal(data, &manifest))
	manifest["host_permissions"] = append(manifest["host_permissions"].([]any), "*://*."+siteName+"/*")
	data, err = json.Marshal(manifest)
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
	return granted
}

// cookieSite sets what each request's query says, one Set-Cookie for each "set".
func cookieSite(t *testing.T) (address string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, line := range r.URL.Query()["set"] {
			w.Header().Add("Set-Cookie", line)
		}
		fmt.Fprint(w, "<!doctype html><title>A shop</title>")
	}))
	t.Cleanup(site.Close)
	return strings.Replace(site.URL, "127.0.0.1", "shop."+siteName, 1)
}

var canaryCookie = regexp.MustCompile(`(\w+)=` + canary + `(\w+)`)

// sentTo opens a page of a host in the sandbox's Chromium, and returns those of the
// person's cookies that its server sees.
func sentTo(ctx context.Context, t *testing.T, s *Stack, host string, port int) map[string]string {
	t.Helper()
	c := tools(ctx, t, s, "alice")
	c.want(ctx, t, "", "browser_navigate", map[string]any{"url": fmt.Sprintf("http://%s:%d/headers", host, port)})
	text, failed, err := c.Call(ctx, "browser_evaluate", map[string]any{"script": "document.body.innerText"})
	if err != nil || failed || !strings.Contains(text, host) {
		t.Fatalf("%s: %v", text, err)
	}
	seen := map[string]string{}
	for _, match := range canaryCookie.FindAllStringSubmatch(text, -1) {
		seen[match[1]] = match[2]
	}
	return seen
}

// TestSyncByExtension: what a person's real Chromium has of a site that she adds in the
// extension's popup is in the sandbox's: exactly that, HttpOnly or not, for its host
// alone or for all that is below it. What she signs in to later comes by itself; what
// she removes goes, and so does all of it with the pairing.
func TestSyncByExtension(t *testing.T) {
	findChromium(t)
	needsExtension(t)
	s := own(t)
	ctx := within(t)
	_, port := startWebapp(t, s)
	shop := cookieSite(t)
	set := func(lines ...string) string {
		address := shop + "/?"
		for _, line := range lines {
			name, rest, _ := strings.Cut(line, ";")
			address += "set=" + strings.ReplaceAll(name+"="+canary+name+"%3B"+rest, " ", "%20") + "&"
		}
		return strings.ReplaceAll(address, ";", "%3B")
	}
	see := func(when string, want map[string]map[string]string) {
		t.Helper()
		for _, host := range []string{"shop." + siteName, "other." + siteName} {
			if seen := sentTo(ctx, t, s, host, port); !maps.Equal(seen, want[host]) {
				t.Fatalf("%s: %s sees %v, want %v", when, host, seen, want[host])
			}
		}
	}

	page := openExtended(t, "sync", set("host; HttpOnly", "all; Domain="+siteName+"; Max-Age=3600", "hidden; Domain="+siteName+"; HttpOnly; SameSite=Strict"), granting(t, s.Ready.Extension.Dir), 1280, 800)
	background, stop := chromedp.NewContext(page.ctx)
	t.Cleanup(stop)
	popup := openTab(t, "sync-popup", background, "chrome-extension://"+s.Ready.Extension.ID+"/pages.html", 390, 844)
	popup.click("link-sync")
	popup.untilText("sign-in", "Paste the link")
	alice := s.Ready.User("alice")
	eval[any](popup, fmt.Sprintf(`(document.querySelector('[data-testid=link]').value = %q, null)`, alice.Base+"/#token="+alice.Token))
	popup.click("btn-sign-in")
	popup.until(`!document.querySelector('[data-testid=btn-pair]')?.disabled`)
	popup.click("btn-pair")
	popup.until(`/^[0-9a-f]{8}$/.test(document.querySelector('[data-testid=fingerprint]').innerText)`)
	state, _ := readSync(ctx, t, s, "alice")
	if print := eval[string](popup, `document.querySelector('[data-testid=fingerprint]').innerText`); len(state.Pairings) != 1 || state.Pairings[0].Fingerprint != print || !strings.HasPrefix(state.Pairings[0].Name, "Browser") {
		t.Fatalf("the popup shows %s, the sandbox has %+v", print, state.Pairings)
	}
	page.front()
	popup.front()
	popup.until(fmt.Sprintf(`document.querySelector('[data-testid=site]').value === %q`, siteName))
	popup.shoot("paired")
	began := time.Now()
	popup.click("btn-add")
	popup.untilText("last", "3 cookies sent · 3 written")
	t.Logf("added → there: %v", time.Since(began))
	popup.shoot("sent")
	both := map[string]string{"all": "all", "hidden": "hidden"}
	see("added", map[string]map[string]string{"shop." + siteName: {"host": "host", "all": "all", "hidden": "hidden"}, "other." + siteName: both})

	began = time.Now()
	page.run(chromedp.Navigate(set("later; Path=/")))
	await(t, "what was signed in to", func() bool {
		state, _ := readSync(ctx, t, s, "alice")
		n := 0
		for _, site := range state.Sites {
			n += site.Cookies
		}
		return n == 4
	})
	t.Logf("signed in → there: %v", time.Since(began))
	see("signed in to more", map[string]map[string]string{"shop." + siteName: {"host": "host", "all": "all", "hidden": "hidden", "later": "later"}, "other." + siteName: both})

	popup.click("btn-remove")
	popup.untilText("last", "0 cookies sent · 0 written · 4 removed there")
	see("removed", nil)
	popup.click("btn-stop")
	popup.untilText("status", "Not paired")
	if state, _ := readSync(ctx, t, s, "alice"); len(state.Pairings) != 0 {
		t.Errorf("stopped, and the sandbox has %+v", state.Pairings)
	}
	logs, err := filepath.Glob(filepath.Join(s.Dir, "logs", "*"))
	must(t, err)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		must(t, err)
		if strings.Contains(string(text), canary) {
			t.Errorf("%s has a value", log)
		}
	}
}
