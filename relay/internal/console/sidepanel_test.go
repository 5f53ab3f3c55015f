package console_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// listSidePanel answers as a relay does that has side panels: the test's
// conversation is in one of its tabs.
func (f *fakeRelay) listSidePanel(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); ok {
		answer(w, http.StatusOK, map[string]any{"tabs": []any{map[string]any{"id": 1, "url": "", "title": "Shop", "active": true, "conversationId": conversation}}})
	}
}

// A side panel's conversation is opened here by a link, once, and goes back to the
// panel of the browser's extension; without one the person is told what is missing.
func testSidePanel(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapChat)
	relay.said("user", "from the panel")
	alice := newTab(t, browser, axeCore(t))
	alice.open(relay.link("alice") + "&chat=" + string(conversation))
	alice.untilText("chat-rows", "from the panel")
	alice.until(`location.hash === ''`)
	alice.until(fmt.Sprintf(`!(%s)`, hidden("btn-chat-aside")))
	alice.axe("a side panel's conversation")
	alice.picture("sidepanel-wide")

	alice.click("btn-chat-aside")
	alice.untilText("hint", "No side panel answers here")
	alice.picture("sidepanel-absent")

	// What the extension's script does in this page.
	alice.eval(`document.addEventListener('fairlead-panel-show', ({detail}) => {
		window.wanted = JSON.parse(detail);
		setTimeout(() => document.dispatchEvent(new CustomEvent('fairlead-panel-shown', {detail: window.outcome ?? 'closed'})));
	})`)
	alice.click("btn-chat-aside")
	alice.untilText("hint", "click the extension’s button")
	alice.until(fmt.Sprintf(`window.wanted.conversation === %q && window.wanted.session !== ''`, conversation))
	alice.eval(`window.outcome = 'opened'`)
	alice.click("btn-chat-aside")
	alice.untilText("hint", "in the side panel now")

	// Another conversation isn't the panel's; the link opens it no second time.
	alice.click("btn-chat-back")
	alice.click("chat-c2")
	alice.until(hidden("btn-chat-aside"))
	alice.click("btn-chat-close")
	alice.eval(`window.old = true`)
	alice.eval(`location.reload()`)
	alice.until(`!window.old && document.body?.classList.contains('ready')`)
	alice.untilText("controller", "control")
	alice.until(hidden("chat"))
	alice.run(phoneOf(390))
	alice.click("btn-more")
	alice.click("btn-chat")
	alice.click("btn-chat-back")
	alice.click("chat-" + string(conversation))
	alice.untilText("chat-rows", "from the panel")
	alice.picture("sidepanel-phone")
	alice.check()
	relay.check(t)
}

// A terminal that has no process yet says so, and shells have names that say what
// runs where.
func testWaitingTerminal(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.mu.Lock()
	for _, p := range relay.ptys {
		p.info.Command, p.info.Dir, p.info.Waiting = "claude", "apps/shop", true
	}
	relay.mu.Unlock()
	alice := newTab(t, browser, axeCore(t))
	alice.open(relay.link("alice"))
	alice.untilText("tabs", "claude · shop")
	alice.untilText("status", "Waits for a key")
	alice.until(`document.querySelector('.tab-box.waiting .tab').title.includes('starts with the first key')`)
	alice.axe("a terminal that waits")
	alice.picture("waiting-wide")
	relay.mu.Lock()
	for _, p := range relay.ptys {
		p.info.Waiting = false
		p.broadcast(protocol.ListChanged{})
	}
	relay.mu.Unlock()
	alice.untilText("status", "Connected")
	alice.until(`document.querySelector('.tab-box.waiting') === null`)
	alice.check()
	relay.check(t)
}
