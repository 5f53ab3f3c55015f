package extension_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead/fairlead/deploy/extension"
)

// Keys come from the control plane: what hangs, redirects, lies or is no key set
// changes nothing, and is asked once in half a minute.
func TestPagesKeys(t *testing.T) {
	r := newRig(t, nil)
	r.describe("ses_1")
	_, tab := r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")
	r.kill()
	lies := r.publish(newKey(t))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, keys := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, r.site.URL+"/keys", http.StatusFound)
		},
		"hangs": func(w http.ResponseWriter, req *http.Request) {
			select {
			case <-release:
			case <-req.Context().Done():
			}
		},
		"lies":    lies,
		"fails":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"floods":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 1<<20), `{"keys":[]}`) },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[]}`) },
	} {
		var asked int
		r.do(func() { r.keys, r.fetched = keys, 0 })
		later[any](r.popup, `chrome.storage.session.remove('pages.keys')`)
		r.kill()
		for range 3 {
			if a := r.say(r.console, r.message(r.payload(tab, "1"))); a.Error.Name != "AuthError" {
				t.Errorf("%s: %+v", name, a)
			}
		}
		r.do(func() { asked = r.fetched })
		if asked != 1 {
			t.Errorf("%s: asked %d times", name, asked)
		}
	}
	if r.hits["/keys"] != 0 {
		t.Error("a redirect was followed")
	}
	// The keys turn over: one refresh, and the command under the new one runs.
	r.do(func() { r.keys, r.fetched = r.publish(r.key), 0 })
	later[any](r.popup, `chrome.storage.session.remove('pages.keys')`)
	r.kill()
	r.outcome(t, r.accepted(r.payload(tab, "1")), 1)
	later[any](r.popup, `chrome.storage.session.get('pages.keys').then((all) => chrome.storage.session.set({'pages.keys': {...all['pages.keys'], tried: 0}}))`)
	r.kill()
	r.key = newKey(t)
	r.do(func() { r.keys = r.publish(r.key) })
	r.outcome(t, r.accepted(r.payload(tab, "1")), 1)
	r.do(func() {
		if r.fetched != 2 {
			t.Errorf("asked %d times, of two keys", r.fetched)
		}
	})
}

// Built for managed machines, with keys of its own: the seed's form runs on all sites,
// and on none of ours.
func TestPagesAllTabs(t *testing.T) {
	p := newPlatform(t)
	set := recorded(p.publish(p.key))
	if testing.Short() {
		t.Skip("a browser")
	}
	r := p.rig(t, t.TempDir(), func(o *extension.Options) { o.Tabs, o.JWKS, o.Keys = extension.TabsAll, "", set })
	_, tab := r.open(r.site.URL + "/shop")
	seed := func(tab int) object {
		return with(r.payload(tab, "1+1"), object{"target": object{"tabId": tab}, "reply.url": r.other.URL + "/control/callback"})
	}
	if got := r.outcome(t, r.accepted(seed(tab)), 1); got.Status != "ok" {
		t.Errorf("told was %s", got.body)
	}
	if got := r.outcome(t, r.accepted(seed(r.number(r.relay.URL))), 1); got.Error.Name != "TargetError" {
		t.Errorf("of the console is told %s", got.body)
	}
	if p.fetched != 0 {
		t.Error("keys are built in, and were asked for")
	}
	r.popup.until(`document.querySelector('[data-testid=managed]').checkVisibility()`)
	r.popup.shoot("managed")
}

// The popup: a tab is shared, its use shows, everything is stopped by one click, and
// goes on when the person says so. The console's page hears of what is shared.
func TestPagesPopup(t *testing.T) {
	for _, size := range sizes {
		t.Run(size.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.popup = newTab(t, r.browser, size.width, size.height, "chrome-extension://"+r.id+"/pages.html")
			r.popup.untilText("status", "Nothing is shared")
			shop, tab := r.open(r.site.URL + "/shop?card=4111")
			front(t, shop)
			front(t, r.popup)
			r.popup.untilText("this-why", "Open a session in the console")
			r.popup.shoot("empty")
			r.describe("ses_1")
			eval[any](r.console, fmt.Sprintf(`(window.port = chrome.runtime.connect(%q, {name: 'driver'}), window.port.onMessage.addListener((m) => window.heard = m), null)`, r.id))
			r.console.until(`window.heard?.type === 'shared' && window.heard.tabs.length === 0 && window.heard.browserId.startsWith('br_')`)
			r.popup.untilText("this", "A shop")
			r.popup.shoot("one")
			r.popup.click("btn-share")
			r.popup.untilText("list", "Alice’s board")
			r.console.until(fmt.Sprintf(`window.heard.tabs[0]?.tabId === %d && window.heard.tabs[0].url === %q && window.heard.tabs[0].sessionId === 'ses_1' && window.heard.tabs[0].title === 'A shop'`, tab, r.site.URL+"/shop"))
			hour := eval[float64](r.console, `window.heard.tabs[0].expiresAt - Date.now()`)
			if hour > float64(time.Hour.Milliseconds()) || hour < float64(50*time.Minute.Milliseconds()) {
				t.Errorf("it is shared for %v ms", hour)
			}
			r.outcome(t, r.accepted(r.payload(tab, "1+1")), 1)
			r.popup.untilText("list", "Runtime.evaluate")
			r.popup.untilText("status", "One tab is shared")
			r.popup.shoot("shared")

			// Attached, and stopped by one click.
			r.badge("")
			id := r.accepted(with(r.payload(tab, "new Promise(() => undefined)"), object{"op.params.awaitPromise": true}))
			r.popup.untilText("status", "Driving one tab")
			r.badge("1")
			r.popup.shoot("driving")
			r.popup.click("btn-stop")
			if got := r.outcome(t, id, 1); got.Error.Name != "TargetError" || !strings.Contains(got.Error.Message, "stopped") {
				t.Errorf("told was %s", got.body)
			}
			r.popup.untilText("stopped", "No command touches")
			r.badge("off")
			r.popup.shoot("stopped")
			r.console.until(`window.heard.tabs.length === 0`)
			r.refused("TargetError", "stopped", r.message(r.payload(tab, "1")))
			r.kill() // the next worker knows it, too
			r.refused("TargetError", "stopped", r.message(r.payload(tab, "1")))
			r.popup.click("btn-resume")
			r.popup.untilHidden("stopped")
			if got := r.outcome(t, r.accepted(r.payload(tab, "1")), 1); !strings.Contains(got.Error.Message, "not shared") {
				t.Errorf("told was %s", got.body)
			}

			// The page ends it, and so does the person.
			r.popup.click("btn-share")
			r.popup.untilText("list", "Alice’s board")
			eval[any](r.console, fmt.Sprintf(`(window.port = chrome.runtime.connect(%q, {name: 'driver'}), window.port.postMessage({type: 'unshare', tabId: %d, sessionId: 'ses_1'}), null)`, r.id, tab))
			r.popup.untilHidden("list")
			r.popup.click("btn-share")
			r.popup.click("btn-unshare")
			r.popup.untilHidden("list")
			r.popup.check()
		})
	}
}

// badge waits for what the button says.
func (r *rig) badge(text string) {
	r.Helper()
	for ctx := patience(r.TB); later[string](r.popup, `chrome.action.getBadgeText({})`) != text; {
		if ctx.Err() != nil {
			r.Fatalf("the badge never says %q", text)
		}
	}
}

// How long a command takes, beside the same attach, call and detach in the worker
// alone: awake, and woken by it.
func TestPagesSpeed(t *testing.T) {
	r := newRig(t, nil)
	r.describe("ses_1")
	_, tab := r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")
	rounds := 30
	var awake, asleep []time.Duration
	command := func() time.Duration {
		m := r.message(r.payload(tab, "1+1"))
		data, _ := json.Marshal(m)
		began := time.Now()
		eval[any](r.console, fmt.Sprintf(`(chrome.runtime.sendMessage(%q, %s), null)`, r.id, data))
		return r.outcome(t, m["commandId"].(string), 1).at.Sub(began)
	}
	for range rounds {
		awake = append(awake, command())
	}
	own := later[[]float64](r.popup, fmt.Sprintf(`(async () => {
		const times = [], target = {tabId: %d};
		for (let i = 0; i < %d; i++) {
			const began = performance.now();
			await chrome.debugger.attach(target, '1.3');
			await chrome.debugger.sendCommand(target, 'Runtime.evaluate', {expression: '1+1'});
			await chrome.debugger.detach(target);
			times.push(performance.now() - began);
		}
		return times.sort((a, b) => a - b);
	})()`, tab, rounds))
	for range 5 {
		r.kill()
		asleep = append(asleep, command())
	}
	slices.Sort(awake)
	slices.Sort(asleep)
	t.Logf("awake p50 %v p95 %v; asleep p50 %v of %d; attach, call, detach alone p50 %.1f ms", awake[rounds/2], awake[rounds*95/100], asleep[2], len(asleep), own[rounds/2])
}

// recorded is what a handler answers.
func recorded(h http.HandlerFunc) []byte {
	w := httptest.NewRecorder()
	h(w, nil)
	return w.Body.Bytes()
}

// Another extension may debug the tab: Chromium lets it in beside ours. The command
// runs, and the other one stays. (An older browser refuses ours: runner.test.ts.)
func TestPagesForeignDebugger(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser")
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.CopyFS(foreign, fstest.MapFS{
		"manifest.json": {Data: []byte(`{"manifest_version":3,"name":"Foreign","version":"1","permissions":["debugger","tabs"]}`)},
		"page.html":     {Data: []byte(`<!doctype html><title>foreign</title>`)},
	}); err != nil {
		t.Fatal(err)
	}
	r := newPlatform(t).rig(t, t.TempDir(), nil, foreign)
	r.describe("ses_1")
	_, shop := r.open(r.site.URL + "/shop")
	r.share(shop, "ses_1")
	other := newTab(t, r.browser, 400, 300, "chrome-extension://"+idOfPath(foreign)+"/page.html")
	other.until(`typeof chrome.debugger === 'object'`)
	later[any](other, fmt.Sprintf(`chrome.debugger.attach({tabId: %d}, '1.3').then(() => null)`, shop))
	if got := r.outcome(t, r.accepted(r.payload(shop, "1+1")), 1); got.Status != "ok" {
		t.Errorf("beside another extension's: %s", got.body)
	}
	if sum := later[int](other, fmt.Sprintf(`chrome.debugger.sendCommand({tabId: %d}, 'Runtime.evaluate', {expression: '2+2'}).then((a) => a.result.value)`, shop)); sum != 4 {
		t.Errorf("the other extension's debugger is gone: %d", sum)
	}
}

// idOfPath is the id of an unpacked extension whose manifest has no key.
func idOfPath(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	id := []byte(hex.EncodeToString(sum[:16]))
	for i, c := range id {
		if c >= 'a' {
			c -= 'a' - '9' - 1
		}
		id[i] = c - '0' + 'a'
	}
	return string(id)
}
