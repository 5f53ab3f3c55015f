package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// begin submits an expression at relay i that is still being evaluated when begin
// returns; it ends when the test lets it, by window.done(). What comes of it is on
// the channel, and the envelope is what the page was given.
func (b *pagesBrowser) begin(i int, mark string, ttl int) (<-chan ranInPage, protocol.CommandEnvelope) {
	b.t.Helper()
	ctx := within(b.t)
	listener := listenIn(ctx, b.t, b.s.at(i, "alice").Base, b.grant, "browser="+b.id)
	ended := make(chan ranInPage, 1)
	at := *b
	at.user, at.ttl = b.s.at(i, "alice"), ttl
	params := map[string]any{"expression": fmt.Sprintf("window.list.push(%q), new Promise((done) => window.done = done)", mark), "awaitPromise": true, "returnByValue": true}
	go func() { ended <- at.send(b.tab, b.id, params) }() // ends with the command
	env := <-listener.events
	b.shop.until(fmt.Sprintf("window.list.at(-1) === %q", mark))
	return ended, env
}

// ran says how often something ran in the shop's tab.
func (b *pagesBrowser) ran(mark string) int {
	b.t.Helper()
	return eval[int](b.shop, fmt.Sprintf("window.list.filter((what) => what === %q).length", mark))
}

// once checks that a command whose fate is known gets its first answer again, and
// that it didn't run again.
func (b *pagesBrowser) once(env protocol.CommandEnvelope, mark string) {
	b.t.Helper()
	if said := b.hand(env); said != "accepted" {
		b.t.Errorf("%s again: %s", mark, said)
	}
	// What came later for the tab has run, so the repetition would have, too.
	if ran := b.evaluate(b.tab, b.id, "1"); ran.Status != "ok" {
		b.t.Errorf("after %s: %+v", mark, ran)
	}
	if n := b.ran(mark); n != 1 {
		b.t.Errorf("%s ran %d times", mark, n)
	}
}

// pagesWorkerKilled: the extension's worker is killed before a command, while it
// runs, and before its outcome was heard.
func pagesWorkerKilled(t *testing.T, b *pagesBrowser) {
	b.endWorker()
	if ran := b.evaluate(b.tab, b.id, "window.list.push('before')"); ran.Status != "ok" || b.ran("before") != 1 {
		t.Errorf("before: %+v, ran %d times", ran, b.ran("before"))
	}

	ended, env := b.begin(0, "during", 5_000)
	b.endWorker()
	if ran := <-ended; ran.Status != "unknown" || ran.Error.Name != "" {
		t.Errorf("during: %+v", ran)
	}
	b.once(env, "during")

	// The relay that would hear of it is away when it ends. The one that comes back is
	// told of the command, and of what came of it. If the worker that knows is gone as
	// well, that may be too late.
	for _, mark := range []string{"after", "after both"} {
		relay, kill, ttl := b.s.Ready.Relays[0], mark != "after", 15_000
		if kill {
			ttl = 5_000
		}
		ended, env = b.begin(1, mark, ttl)
		killRelay(t, b.s)
		eval[any](b.shop, fmt.Sprintf("(window.done(%q), null)", mark))
		await(b.t, "it is noted what came of it", func() bool {
			return promised[bool](b.popup, fmt.Sprintf(`chrome.storage.local.get(null).then((all) => JSON.stringify(all).includes('"value":%q'))`, mark))
		})
		if kill {
			b.endWorker()
		}
		awaitRelay(within(t), t, b.s, 0, relay.PID)
		awaitReady(t, relay.AdminURL)
		if ran := <-ended; ran.Status != "ok" && (ran.Status != "unknown" || !kill) {
			t.Errorf("%s: %+v", mark, ran)
		}
		b.once(env, mark)
	}

	// After so many workers the page would wait for long before it speaks to the next.
	b.console.run(chromedp.Reload())
	b.console.untilText("status", "Connected")
	b.console.front()
	b.console.click("btn-mytabs")
	b.console.untilText("mytabs-shared", "A shop")
}

// pagesOurs: no command touches a tab of the console, of the control plane or of a
// foreign site, also where the tab was shared before it went there.
func pagesOurs(t *testing.T, b *pagesBrowser) {
	foreign := b.open("pages-foreign", b.site+"/mail")
	tab := b.number(b.site + "/mail")
	refused := func(what, says string) {
		t.Helper()
		if ran := b.evaluate(tab, b.id, "window.list?.push('touched'), document.cookie"); ran.Error.Name != "TargetError" || !strings.Contains(ran.Error.Message, says) {
			t.Errorf("%s: %+v", what, ran)
		}
	}
	refused("a tab that isn't shared", "not shared")
	if n := eval[int](foreign, "window.list.length"); n != 0 {
		t.Error("it ran")
	}
	b.shareTab(tab)
	for what, url := range map[string]string{
		"control plane": b.s.Ready.ControlPlane.URL + "/.well-known/jwks.json", "console": b.user.Base + "/",
		"other relay": b.s.at(1, "alice").Base + "/", "browser's page": "chrome://version/",
	} {
		foreign.run(chromedp.Navigate(url))
		refused("a shared tab that went to the "+what, "not at a site")
	}
	b.unshareTab(tab)
}

// shareTab shares a tab from the popup's page, by its number.
func (b *pagesBrowser) shareTab(tab int) {
	b.t.Helper()
	b.wish("share", tab)
	b.popup.until(fmt.Sprintf(`window.state?.shares.some((s) => s.tabId === %d)`, tab))
}

func (b *pagesBrowser) unshareTab(tab int) {
	b.t.Helper()
	b.wish("unshare", tab)
	b.popup.until(fmt.Sprintf(`window.state && !window.state.shares.some((s) => s.tabId === %d)`, tab))
}

// wish says what the popup's buttons say, by a port of the worker that there is now.
func (b *pagesBrowser) wish(what string, tab int) {
	b.t.Helper()
	b.listenToWorker(b.popup)
	eval[any](b.popup, fmt.Sprintf(`(window.port.postMessage({do: %q, tabId: %d, sessionId: %q, minutes: 10}), null)`, what, tab, b.s.Ready.SessionID))
}

// restarted ends the browser while a command runs in it, and begins it anew with
// the same profile: what ran isn't known, and neither that nor what had ended before
// runs again when it is sent once more.
func (b *pagesBrowser) restarted(profile, shop string) {
	b.t.Helper()
	ctx := within(b.t)
	listener := listenIn(ctx, b.t, b.user.Base, b.grant, "browser="+b.id)
	buy := func(path string) map[string]any {
		return map[string]any{"expression": fmt.Sprintf("fetch(%q).then(() => new Promise((done) => %v || done(1)))", path, path == "/running"), "awaitPromise": true}
	}
	if ran := b.send(b.tab, b.id, buy("/ended")); ran.Status != "ok" {
		b.t.Fatalf("%+v", ran)
	}
	over := <-listener.events
	ended := make(chan ranInPage, 1)
	before := *b
	go func() { ended <- before.send(before.tab, before.id, buy("/running")) }() // ends with the command
	under := <-listener.events
	await(b.t, "it runs", func() bool { return b.hits("/running") == 1 })
	_ = promised[any](b.popup, `new Promise((done) => setTimeout(done, 100))`) // the profile hears of it
	if err := chromedp.Cancel(b.console.ctx); err != nil {
		b.t.Fatal(err)
	}

	again := openPages(b.t, b.s, 1, "pages-again", shop, chromedp.UserDataDir(profile))
	again.hits = b.hits
	if again.id != b.id {
		b.t.Errorf("the browser is %s, and was %s", again.id, b.id)
	}
	if ran := <-ended; ran.Status != "unknown" {
		b.t.Errorf("of a browser that ended: %+v", ran)
	}
	again.untilShared(b.name(), false)
	again.share()
	for _, env := range []protocol.CommandEnvelope{over, under} {
		if said := again.hand(env); said != "accepted" {
			b.t.Errorf("again: %s", said)
		}
	}
	if ran := again.evaluate(again.tab, again.id, "1"); ran.Status != "ok" {
		b.t.Errorf("%+v", ran)
	}
	for _, path := range []string{"/ended", "/running"} {
		if n := b.hits(path); n != 1 {
			b.t.Errorf("%s was asked for %d times", path, n)
		}
	}
}
