package console_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"github.com/fairlead/fairlead/protocol"
)

// The extension of these windows, which they share as windows of one browser do:
// what it is sent stands in localStorage.
const fakeExtension = `
	const browserId = 'br_' + 'a'.repeat(26);
	const ports = [];
	const shared = () => ({type: 'shared', browserId, tabs: JSON.parse(localStorage.getItem('x.shared') ?? '[]')});
	addEventListener('storage', (e) => { if (e.key === 'x.shared') ports.forEach((p) => p.say(shared())) });
	window.chrome = {runtime: {
		sendMessage(id, message, answer) {
			if (id !== 'present') { this.lastError = {message: 'Could not establish connection.'}; answer(undefined); delete this.lastError; return }
			if (message.action === 'describe') return answer({ok: true, requestId: message.requestId, data: {browserId, version: '1', tabs: 'shared'}});
			const invoked = JSON.parse(localStorage.getItem('x.invoked') ?? '[]');
			localStorage.setItem('x.invoked', JSON.stringify([...invoked, message.commandId + ' ' + message.jws + ' ' + message.target.tabId]));
			answer(message.jws === 'bad' ? {ok: false, requestId: message.requestId, error: {name: 'AuthError', message: 'Invalid signature'}} : {ok: true, requestId: message.requestId, data: {accepted: true}});
		},
		connect(id, {name}) {
			const take = [];
			const port = {say: (m) => take.forEach((t) => t(m)), postMessage(m) { localStorage.setItem('x.unshare', JSON.stringify(m)) }, disconnect() {},
				onMessage: {addListener(t) { take.push(t); queueMicrotask(() => t(shared())) }}, onDisconnect: {addListener() {}}};
			ports.push(port);
			return port;
		},
	}};
	window.share = (tabs) => { localStorage.setItem('x.shared', JSON.stringify(tabs)); ports.forEach((p) => p.say(shared())) };`

func envelopeOf(id, jws string) string {
	return fmt.Sprintf(`{"type":"control.command","commandId":%q,"traceId":"tr_1","issuedAt":1,"ttlMs":1,"target":{"sessionId":"ses_demo","extensionId":"present","tabId":7},"jws":%q}`, id, jws)
}

// testReports: what the extension says again is told once, and again to a relay that
// was away.
func testReports(t *testing.T, relay *fakeRelay, w *tab) {
	t.Helper()
	reports := func() (all []string) {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		return slices.Clone(relay.tabs.reports)
	}
	before := len(reports())
	w.eval(`window.share(JSON.parse(localStorage.getItem('x.shared')))`)
	w.eval(`window.share(JSON.parse(localStorage.getItem('x.shared')).map((tab) => ({...tab, title: 'Post'})))`)
	relay.until(t, "the other title is reported", func() bool {
		return slices.ContainsFunc(relay.tabs.reports[before:], func(r string) bool { return strings.Contains(r, `"Post"`) })
	})
	if all := reports()[before:]; len(all) != 1 {
		t.Errorf("reported again: %q", all)
	}
	relay.cutCommands()
	relay.until(t, "it is told again", func() bool { return len(relay.tabs.reports) == before+2 })
}

// One of a person's windows carries commands to the extension, expired ones too,
// and another when that one is closed; it tells which tabs are shared.
func testMyTabs(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapMCP)
	install := command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fakeExtension})
	first := newTab(t, browser, install, axeCore(t))
	first.open(relay.link("alice"))
	first.untilText("controller", "You have control")
	relay.until(t, "a stream is open", func() bool { return len(relay.tabs.opened) == 1 })
	second := newWindow(t, first.ctx, install)
	second.open(relay.link("alice"))
	second.untilText("status", "Connected")
	invoked := func(want ...string) {
		t.Helper()
		first.until(fmt.Sprintf(`localStorage.getItem('x.invoked') === %q`, `["`+strings.Join(want, `","`)+`"]`))
	}
	relay.command(envelopeOf("cmd_1", "x.y.z"))
	invoked("cmd_1 x.y.z 7")
	relay.cutCommands()
	relay.until(t, "the stream goes on", func() bool {
		return slices.Contains(relay.tabs.opened, "browser=br_aaaaaaaaaaaaaaaaaaaaaaaaaa e-1")
	})
	relay.command(envelopeOf("cmd_2", "bad"))
	invoked("cmd_1 x.y.z 7", "cmd_2 bad 7")
	first.until(`document.querySelector('.hint')?.innerText.includes('Invalid signature')`)

	until := time.Now().Add(10 * time.Minute)
	first.eval(fmt.Sprintf(`window.share([{tabId: 7, title: 'Mail', url: 'https://mail.example/inbox', sessionId: 'ses_demo', expiresAt: %d, attached: false},
		{tabId: 8, title: 'Other', url: 'https://b.example/', sessionId: 'ses_other', expiresAt: 1, attached: false}])`, until.UnixMilli()))
	relay.until(t, "the tab is reported", func() bool {
		return slices.ContainsFunc(relay.tabs.reports, func(r string) bool {
			return strings.Contains(r, `"tabId":7`) && strings.Contains(r, `"extensionId":"present"`) && !strings.Contains(r, `"tabId":8`)
		})
	})
	testReports(t, relay, first)
	tabOf := func(user, name, browser string, id int, title string) map[string]any {
		return map[string]any{"user": user, "name": name, "browserId": browser, "extensionId": "present", "tabId": id, "title": title,
			"url": "https://mail.example/inbox", "sharedAt": time.Now(), "expiresAt": until, "last": map[string]any{"method": "Runtime.evaluate", "status": "ok", "at": time.Now()}}
	}
	here, elsewhere := "br_"+strings.Repeat("a", 26), "br_"+strings.Repeat("b", 26)
	ran := func(id, by, method, status string, more ...any) map[string]any {
		m := map[string]any{"commandId": id, "by": by, "browserId": here, "tabId": 7, "method": method, "status": status, "issuedAt": time.Now().Add(-time.Minute), "ttlMs": 15000}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	relay.mu.Lock()
	relay.tabs.list = map[string]any{
		"tabs": []any{
			tabOf("usr_alice", "alice", here, 7, "Mail"), tabOf("usr_alice", "alice", elsewhere, 3, "Calendar of a rather long name, which does not fit"),
			tabOf("usr_bob", "bob", elsewhere, 9, "Bob’s tracker"),
		},
		"commands": []any{
			ran("cmd_9", "agent", "Page.captureScreenshot", "signed", "issuedAt", time.Now().Add(time.Minute)),
			ran("cmd_8", "agent", "Runtime.evaluate", "ok", "finishedAt", time.Now().Add(-time.Minute+120*time.Millisecond), "answer", `{"result":{"type":"number","value":2}}`),
			ran("cmd_7", "person", "Page.navigate", "error", "error", map[string]any{"name": "TargetError", "message": "No such tab"}),
			ran("cmd_6", "agent", "DOM.getDocument", "unknown"),
		},
	}
	relay.mu.Unlock()
	first.click("btn-mytabs")
	first.untilText("mytabs-shared", "Mail")
	first.untilText("mytabs-ran", "failed (TargetError)")
	first.untilText("mytabs-here", "The extension answers")
	if n := eval[int](first, `document.querySelectorAll('#mytabs-shared button:not([hidden])').length`); n != 1 {
		t.Errorf("%d tabs can be unshared here", n)
	}
	first.eval(`document.querySelectorAll('[data-testid=ran] details')[1].open = true`)
	first.axe("shared tabs")
	for _, width := range []int64{1280, 780} {
		first.run(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 860, DeviceScaleFactor: 1}))
		if wide := eval[string](first, `[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && e.closest('.tools, .xterm, .terminal') === null).map((e) => e.tagName + e.id + '.' + e.className).slice(0, 6).join() `); wide != "" {
			t.Errorf("at %d beyond the window: %s", width, wide)
		}
		first.picture(fmt.Sprintf("mytabs-%d", width))
	}
	first.eval(`document.querySelector('#mytabs-shared button:not([hidden])').click()`)
	first.until(`localStorage.getItem('x.unshare') === '{"type":"unshare","tabId":7,"sessionId":"ses_demo"}'`)
	first.run(phoneOf(390))
	first.until(`!document.querySelector('.hint')?.checkVisibility() || document.documentElement.scrollWidth <= innerWidth`)
	first.axe("shared tabs on a phone")
	first.picture("mytabs-phone")
	first.check()

	first.run(command(page.Close, cdp.Empty{}))
	relay.until(t, "the other window goes on", func() bool { return len(relay.tabs.opened) == 3 })
	relay.command(envelopeOf("cmd_3", "x.y.z"))
	second.until(`localStorage.getItem('x.invoked')?.includes('cmd_3')`)
	if got := strings.Count(eval[string](second, `localStorage.getItem('x.invoked')`), "cmd_"); got < 3 {
		t.Errorf("%d commands were handed on", got)
	}
	second.check()
	relay.check(t)
}

// A browser without the extension says so.
func testNoExtension(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapMCP)
	alice, carol := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	carol.open(relay.link("carol"))
	alice.untilText("controller", "You have control")
	relay.until(t, "a stream is open", func() bool { return slices.Equal(relay.tabs.opened, []string{" "}) })
	relay.command(envelopeOf("cmd_1", "x.y.z"))
	alice.until(`document.querySelector('.hint')?.innerText.includes('no extension')`)
	alice.click("btn-mytabs")
	alice.untilText("mytabs-here", "No extension answers")
	carol.click("btn-mytabs")
	carol.untilText("mytabs-here", "You may watch")
	alice.check()
	carol.check()
	relay.check(t)
}
