package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// A pagesBrowser is a person's own browser with the extension: the console's page,
// a shop's, and the popup, whose page stands in a tab, since a headless browser has
// no button to click.
type pagesBrowser struct {
	t       *testing.T
	s       *Stack
	user    User
	console *window
	popup   *window
	shop    *window
	tab     int    // the shop's
	id      string // of the installation
	grant   string
	site    string           // that the shop is at
	hits    func(string) int // of it, by path
	ttl     int              // of commands, in ms; 0: as usual
}

// openPages starts a browser whose console is at relay i.
func openPages(t *testing.T, s *Stack, i int, name, shop string, more ...chromedp.ExecAllocatorOption) *pagesBrowser {
	t.Helper()
	b := &pagesBrowser{t: t, s: s, user: s.at(i, "alice"), grant: mustGrant(within(t), t, s, "alice")}
	b.console = openExtended(t, name, b.user.Base+"/#token="+b.user.Token, s.Ready.Extension.Dir, 1280, 800, more...)
	b.console.untilText("status", "Connected")
	b.console.front() // before the welcome page, and from then on
	b.popup = b.openPopup(name + "-popup")
	b.popup.untilText("this", "Not a tab to share") // the console's
	b.shop = b.open(name+"-shop", shop)
	b.tab = b.number(shop)
	b.popup.until(`window.state?.sessions.length > 0`) // the console has found the extension
	b.id = eval[string](b.popup, `window.state.browserId`)
	return b
}

func (b *pagesBrowser) openPopup(name string) *window {
	b.t.Helper()
	w := b.open(name, "chrome-extension://"+b.s.Ready.Extension.ID+"/pages.html")
	b.watch(w)
	return w
}

// watch has the popup's page know what the worker says.
func (b *pagesBrowser) watch(w *window) {
	b.t.Helper()
	w.until(`typeof chrome.tabs === 'object'`)
	b.listenToWorker(w)
}

// listenToWorker opens a port, which lasts as long as the worker.
func (b *pagesBrowser) listenToWorker(w *window) {
	b.t.Helper()
	eval[any](w, `(window.state = undefined, window.port = chrome.runtime.connect({name: 'pages'}), window.port.onMessage.addListener((s) => window.state = s), null)`)
}

func (b *pagesBrowser) open(name, url string) *window {
	b.t.Helper()
	ctx, stop := chromedp.NewContext(b.console.ctx)
	b.t.Cleanup(stop)
	return openTab(b.t, name, ctx, url, 800, 600)
}

// number is what extensions know a tab by.
func (b *pagesBrowser) number(url string) int {
	b.t.Helper()
	id := promised[int](b.popup, fmt.Sprintf(`chrome.tabs.query({}).then((all) => all.find((t) => (t.url ?? '').startsWith(%q))?.id ?? 0)`, url))
	if id == 0 {
		b.t.Fatalf("no tab is at %s", url)
	}
	return id
}

// promised evaluates to what a promise brings.
func promised[T any](w *window, expression string) T {
	w.t.Helper()
	value, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		w.t.Fatalf("%s's browser: %s: %v", w.name, expression, err)
	}
	return value
}

// share shares the shop's tab, the last one that was opened, in the popup, and
// waits until everybody knows.
func (b *pagesBrowser) share() {
	b.t.Helper()
	b.popup.front()
	b.popup.untilText("this", "A shop")
	b.popup.front()
	b.popup.click("btn-share")
	b.untilShared(b.name(), true)
}

// name is how agents call the shop's tab.
func (b *pagesBrowser) name() string { return fmt.Sprintf("%s/%d", b.id, b.tab) }

// shared are the tabs that the session's members see, as agents call them.
func (b *pagesBrowser) shared() (names []string) {
	b.t.Helper()
	var list struct {
		Tabs []struct {
			BrowserID, URL string
			TabID          int
		}
	}
	must(b.t, call(within(b.t), http.StatusOK, &list, http.MethodGet, b.user.Base+"/sessions/"+string(b.s.Ready.SessionID)+"/tabs", b.grant, nil))
	for _, tab := range list.Tabs {
		if strings.Contains(tab.URL, "?") {
			b.t.Errorf("an address with its query: %s", tab.URL)
		}
		names = append(names, fmt.Sprintf("%s/%d", tab.BrowserID, tab.TabID))
	}
	return names
}

func (b *pagesBrowser) untilShared(name string, want bool) {
	b.t.Helper()
	await(b.t, fmt.Sprintf("shared: %v", want), func() bool { return slices.Contains(b.shared(), name) == want })
}

// A ranInPage is the answer of POST /commands.
type ranInPage struct {
	Code      int `json:"-"`
	CommandID protocol.CommandID
	Status    string
	Result    struct {
		Response struct{ Result struct{ Value any } }
	}
	Error protocol.ErrorBody
}

// evaluate has an expression evaluated in a tab; browser may be empty.
func (b *pagesBrowser) evaluate(tab int, browser, expression string) ranInPage {
	b.t.Helper()
	return b.send(tab, browser, map[string]any{"expression": expression, "returnByValue": true})
}

// send is evaluate with all that Runtime.evaluate takes.
func (b *pagesBrowser) send(tab int, browser string, params map[string]any) (ran ranInPage) {
	b.t.Helper()
	target := map[string]any{"sessionId": b.s.Ready.SessionID, "extensionId": b.s.Ready.Extension.ID, "tabId": tab}
	if browser != "" {
		target["browserId"] = browser
	}
	command := map[string]any{"target": target, "op": map[string]any{"kind": "cdp.send", "method": "Runtime.evaluate", "params": params}}
	if b.ttl != 0 {
		command["ttlMs"] = b.ttl
	}
	code, body, err := Call(within(b.t), http.MethodPost, b.user.Base+"/commands", b.user.Token, command)
	must(b.t, err)
	if err := json.Unmarshal(body, &ran); err != nil {
		b.t.Fatalf("%d %s", code, body)
	}
	ran.Code = code
	return ran
}

// sized gives a window the size of another machine's.
func (w *window) sized(width, height int64) {
	w.t.Helper()
	w.run(devtools(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	}))
}

// hand gives an envelope to the extension, as the console's page does, and returns
// what that says: "accepted", or the name of an error.
func (b *pagesBrowser) hand(env protocol.CommandEnvelope) string {
	b.t.Helper()
	message, err := json.Marshal(map[string]any{
		"type": "driver", "action": "invoke", "requestId": "web-1", "commandId": env.CommandID, "traceId": env.TraceID,
		"target": map[string]any{"tabId": env.Target.TabID}, "jws": env.JWS,
	})
	must(b.t, err)
	return promised[string](b.console, fmt.Sprintf(`chrome.runtime.sendMessage(%q, %s).then((a) => a.ok && a.data.accepted ? 'accepted' : a.error.name)`, b.s.Ready.Extension.ID, message))
}

// tools are those of a program in a terminal of the session.
func (b *pagesBrowser) tools() *ToolClient {
	b.t.Helper()
	credentials, err := Credentials(b.s.Ready.Sandboxes[0].PID, b.s.Ready.PTYID)
	must(b.t, err)
	c, err := LocalTools(within(b.t), credentials)
	must(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

func hasTool(t *testing.T, c *ToolClient, tool string) bool {
	t.Helper()
	names, err := c.List(within(t))
	must(t, err)
	return slices.Contains(names, tool)
}

// TestPages: what the control plane signs runs in tabs that alice shares, and in no
// other. Two browsers of hers, with the extension, are at a relay each.
func TestPages(t *testing.T) {
	needsExtension(t)
	s := own(t, "--relays", "2")
	if s.Ready.Extension.ID == "" {
		t.Fatalf("the ready file names no extension: %s", s.Output())
	}
	var mu sync.Mutex
	asked := map[string]int{}
	hits := func(path string) int {
		mu.Lock()
		defer mu.Unlock()
		return asked[path]
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		fmt.Fprint(w, `<!doctype html><title>A shop</title><h1>A shop</h1><script>window.list = []</script>`)
	}))
	t.Cleanup(site.Close)
	b := openPages(t, s, 0, "pages", site.URL+"/basket?card=4111")
	b.site, b.hits = site.URL, hits
	for _, part := range []struct {
		name string
		run  func(*testing.T, *pagesBrowser)
	}{
		{"refused", pagesRefused}, {"run", pagesRun}, {"forged", pagesForged}, {"agents", pagesAgents}, {"speed", pagesSpeed}, {"ended", pagesEnded},
		{"ours", pagesOurs}, {"relay killed", pagesRelayKilled}, {"worker killed", pagesWorkerKilled}, {"two browsers", pagesTwoBrowsers},
		{"loaded anew", pagesLoadedAnew},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, b.in(t)) }) {
			return // the next one goes on from there
		}
	}
}

// in is the browser as a part of the test uses it.
func (b *pagesBrowser) in(t *testing.T) *pagesBrowser {
	c := *b
	c.t = t
	for _, w := range []**window{&c.console, &c.popup, &c.shop} {
		*w = &window{t, (*w).name, (*w).ctx}
	}
	return &c
}

// pagesRefused: a tab that nobody shares, one that isn't there, and the console's own.
func pagesRefused(t *testing.T, b *pagesBrowser) {
	for name, tab := range map[string]int{"not shared": b.tab, "no tab": 1 << 30, "the console's": b.number(b.user.Base)} {
		if ran := b.evaluate(tab, "", "window.list?.push('refused')"); ran.Status != "error" || ran.Error.Name != "TargetError" {
			t.Errorf("%s: %+v", name, ran)
		}
	}
	if n := eval[int](b.shop, "window.list.length"); n != 0 {
		t.Error("it ran")
	}
	if hasTool(t, b.tools(), "tab_send") {
		t.Error("agents have a tool for tabs that nobody shares")
	}
}

// pagesRun: the outcome comes back, and the console shows what ran where.
func pagesRun(t *testing.T, b *pagesBrowser) {
	b.share()
	ran := b.evaluate(b.tab, "", "1+1")
	if ran.Code != http.StatusOK || ran.Status != "ok" || ran.Result.Response.Result.Value != 2.0 {
		t.Fatalf("1+1: %+v", ran)
	}
	b.console.front()
	b.console.click("btn-mytabs")
	b.console.untilText("mytabs-here", "The extension answers")
	b.console.untilText("mytabs-shared", "A shop")
	b.console.untilText("mytabs-ran", "Runtime.evaluate")
	b.console.shoot("shared")
	b.popup.front()
	b.popup.untilText("list", "Runtime.evaluate")
	b.popup.shoot("shared")
}

// pagesForged: a carrier may change nothing, and the same command runs once.
func pagesForged(t *testing.T, b *pagesBrowser) {
	ctx := within(t)
	listener := listenIn(ctx, t, b.user.Base, b.grant, "browser="+b.id)
	if ran := b.evaluate(b.tab, "", "window.list.push('once')"); ran.Status != "ok" {
		t.Fatalf("%+v", ran)
	}
	env := <-listener.events
	if env.Target.TabID != int64(b.tab) {
		t.Fatalf("another command: %+v", env.Target)
	}
	for range 2 {
		if said := b.hand(env); said != "accepted" {
			t.Errorf("again: %s", said)
		}
	}
	head, rest, _ := strings.Cut(env.JWS, ".")
	signed, signature, _ := strings.Cut(rest, ".")
	for _, change := range [][2]string{{"'once'", "'more'"}, {"Runtime.evaluate", "Page.bringToFront"}, {fmt.Sprint(`"tabId":`, b.tab), fmt.Sprint(`"tabId":`, b.tab+1)}} {
		forged := env
		forged.JWS = head + "." + changed(t, signed, change[0], change[1]) + "." + signature
		if said := b.hand(forged); said != "AuthError" {
			t.Errorf("%q for %q: %s", change[1], change[0], said)
		}
	}
	elsewhere := env
	elsewhere.Target.TabID++
	if said := b.hand(elsewhere); said != "AuthError" {
		t.Errorf("for another tab: %s", said)
	}
	if ran := b.evaluate(b.tab, "", "window.list.join()"); ran.Result.Response.Result.Value != "once" {
		t.Errorf("in the tab ran %v", ran.Result.Response.Result.Value)
	}
}

// pagesAgents: while the tab is shared, the session's agents list it and use it.
func pagesAgents(t *testing.T, b *pagesBrowser) {
	ctx := within(t)
	c := b.tools()
	await(t, "tools for tabs", func() bool { return hasTool(t, c, "tab_send") })
	if text := c.want(ctx, t, b.name(), "tab_list", map[string]any{}); strings.Contains(text, "4111") {
		t.Errorf("agents read the address's query: %s", text)
	}
	c.want(ctx, t, "A shop", "tab_send", map[string]any{"tab": b.name(), "method": "Runtime.evaluate", "params": map[string]any{"expression": "document.title"}})
	for what, args := range map[string]map[string]any{
		"another tab":      {"tab": b.id + "/1", "method": "Page.reload"},
		"no such method":   {"tab": b.name(), "method": "Network.getAllCookies"},
		"a file's address": {"tab": b.name(), "method": "Page.navigate", "params": map[string]any{"url": "file:///etc/passwd"}},
	} {
		if text, failed, err := c.Call(ctx, "tab_send", args); err != nil || !failed {
			t.Errorf("%s: %q %v", what, text, err)
		}
	}
	b.console.front()
	b.console.untilText("mytabs-ran", "an agent")
	b.console.shoot("agent")
	b.console.sized(390, 844)
	b.console.shoot("agent-phone")
	b.console.sized(1280, 800)
}

// pagesSpeed says how long a command takes, from POST to answer, beside what the
// extension's attach, call and detach take alone: awake, and woken by it.
func pagesSpeed(t *testing.T, b *pagesBrowser) {
	timed := func(n int, before func()) []time.Duration {
		var took []time.Duration
		for range n {
			before()
			began := time.Now()
			if ran := b.evaluate(b.tab, b.id, "1+1"); ran.Status != "ok" {
				t.Fatalf("%+v", ran)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took
	}
	watched := timed(20, func() {}) // the console lists each
	b.console.click("btn-mytabs-close")
	b.shop.front()
	awake := timed(20, func() {})
	alone := promised[float64](b.popup, fmt.Sprintf(`(async () => {
		const took = [], target = {tabId: %d};
		for (let i = 0; i < 20; i++) {
			const began = performance.now();
			await chrome.debugger.attach(target, '1.3');
			await chrome.debugger.sendCommand(target, 'Runtime.evaluate', {expression: '1+1'});
			await chrome.debugger.detach(target);
			took.push(performance.now() - began);
		}
		return took.sort((a, b) => a - b)[10];
	})()`, b.tab))
	asleep := timed(5, b.endWorker)
	t.Logf("awake p50 %v p95 %v, with the console's list open p50 %v; asleep p50 %v of %d; attach, call, detach alone p50 %.1f ms",
		awake[10], awake[18], watched[10], asleep[2], len(asleep), alone)
	b.console.front()
	b.console.click("btn-mytabs")
	b.console.untilText("mytabs-shared", "A shop")
}

// pagesEnded: the console ends a share, and what is refused is refused everywhere.
func pagesEnded(t *testing.T, b *pagesBrowser) {
	b.console.front()
	eval[any](b.console, `(document.querySelector('[data-testid=mytab] button').click(), null)`)
	b.untilShared(b.name(), false)
	if ran := b.evaluate(b.tab, "", "1"); ran.Error.Name != "TargetError" {
		t.Errorf("after the share: %+v", ran)
	}
	c := b.tools()
	await(t, "no tools for tabs", func() bool { return !hasTool(t, c, "tab_send") })
	b.share()
	b.popup.click("btn-unshare")
	b.untilShared(b.name(), false)
	b.share()
}

// pagesRelayKilled: the console's stream comes back by itself.
func pagesRelayKilled(t *testing.T, b *pagesBrowser) {
	relay := b.s.Ready.Relays[0]
	killRelay(t, b.s)
	awaitRelay(within(t), t, b.s, 0, relay.PID)
	awaitReady(t, relay.AdminURL)
	await(t, "a command runs again", func() bool { return b.evaluate(b.tab, b.id, "40+2").Result.Response.Result.Value == 42.0 })
}

// pagesTwoBrowsers: who has two browsers must say which, and agents use both.
func pagesTwoBrowsers(t *testing.T, b *pagesBrowser) {
	profile, shop := t.TempDir(), eval[string](b.shop, "location.href")
	other := openPages(t, b.s, 1, "pages-other", shop, chromedp.UserDataDir(profile))
	other.site, other.hits = b.site, b.hits
	if other.id == b.id {
		t.Fatal("two browsers have one id")
	}
	other.share()
	if ran := b.evaluate(b.tab, "", "window.list.push('unclear')"); ran.Code != http.StatusConflict {
		t.Errorf("for either: %+v", ran)
	}
	for _, one := range []*pagesBrowser{b, other} {
		if ran := b.evaluate(one.tab, one.id, fmt.Sprintf("window.list.push(%q)", one.id)); ran.Status != "ok" {
			t.Errorf("for %s: %+v", one.id, ran)
		}
		if list := eval[string](one.shop, "window.list.at(-1)"); list != one.id {
			t.Errorf("in %s ran %s", one.id, list)
		}
	}
	c := b.tools()
	text := c.want(within(t), t, b.name(), "tab_list", map[string]any{})
	if !strings.Contains(text, other.name()) {
		t.Errorf("agents see %s", text)
	}
	c.want(within(t), t, other.id, "tab_send", map[string]any{"tab": other.name(), "method": "Runtime.evaluate", "params": map[string]any{"expression": "window.list.at(-1)"}})
	other.restarted(profile, shop)
}

// pagesLoadedAnew: an extension that is loaded anew has forgotten what was shared, and
// is told of the session by the page that is open. One that is gone shares nothing.
func pagesLoadedAnew(t *testing.T, b *pagesBrowser) {
	_ = promised[any](b.popup, `chrome.storage.session.clear().then(() => null)`)
	b.endWorker()
	b.untilShared(b.name(), false)
	b.popup.run(chromedp.Reload())
	b.watch(b.popup)
	b.popup.until(fmt.Sprintf(`window.state?.sessions.some((s) => s.id === %q)`, b.s.Ready.SessionID))
	b.shareTab(b.tab)
	b.untilShared(b.name(), true)
	if ran := b.evaluate(b.tab, b.id, "1+1"); ran.Status != "ok" {
		t.Errorf("%+v", ran)
	}

	// Headless, it doesn't come back from that.
	eval[any](b.popup, `(setTimeout(() => chrome.runtime.reload()), null)`)
	b.untilShared(b.name(), false)
	b.console.front()
	b.console.untilText("mytabs-here", "No extension answers")
}

// endWorker ends the extension's worker, as Chrome does after half a minute.
func (b *pagesBrowser) endWorker() {
	b.t.Helper()
	all, err := chromedp.Targets(b.console.ctx)
	must(b.t, err)
	for _, about := range all {
		if about.Type == "service_worker" && strings.Contains(about.URL, b.s.Ready.Extension.ID) {
			ctx, stop := context.WithTimeout(b.console.ctx, time.Second)
			_, _ = chromedp.CallBrowser(ctx, target.CloseTarget, target.CloseTargetParams{TargetID: about.TargetID}) // one that goes by itself never answers
			stop()
		}
	}
}

// changed is a signed part with something else in it.
func changed(t *testing.T, signed, old, now string) string {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(signed)
	must(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("no %s in %s", old, data)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(data), old, now, 1)))
}
