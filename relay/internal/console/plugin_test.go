package console_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

// Plugins' pages stand among the terminals' tabs, each on a host of its own, out of
// reach of the console; they come and go as plugins do, and go on under newer grants.
func testPluginPages(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.lifetime = 4 * time.Second
	relay.give("ut_alice", protocol.CapPlugins)
	docs := pluginsocket.Info{Name: "docs", PTYID: "pty_1", Port: 3000}
	board := pluginsocket.Info{Name: "board_with-a-long-name", PTYID: "pty_1", Port: 4000}
	relay.plug(docs)
	const (
		frameOf  = `document.querySelector('[data-testid="page-%s"]')`
		inFront  = `document.querySelector('[data-testid="tab-%s"]')?.ariaSelected === 'true'`
		noClose  = `document.querySelector('#tab-close').hidden`
		pageOpen = `!document.querySelector('#pages').hidden`
	)
	alice, bob := newTab(t, browser, axeCore(t)), newTab(t, browser)
	alice.open(relay.link("alice"))
	bob.open(relay.link("bob"))
	alice.untilText("controller", "You have control")
	alice.untilText("tab-plugin:docs", "docs")
	alice.eval(`window.addEventListener('message', ({data}) => { window.heard = data })`)
	alice.click("tab-plugin:docs")
	alice.until(`window.heard === 'top is out of reach'`)
	alice.until(fmt.Sprintf(inFront, "plugin:docs") + " && " + pageOpen + " && " + noClose)
	alice.until(`document.title.startsWith('docs')`)
	alice.axe("a plugin's page")
	alice.picture("plugin-wide")

	relay.plug(docs, board) // everybody hears of it
	alice.untilText("tab-plugin:"+board.Name, board.Name)
	relay.until(t, "the page goes on under a newer grant", func() bool { return slices.Contains(relay.plugins.renewed, 3000) })
	alice.eval(`document.querySelector('[data-testid="tab-plugin:docs"]').focus()`)
	alice.press(0, "ArrowLeft", "ArrowLeft", 37)
	alice.until(fmt.Sprintf(inFront, "pty_1") + " && !(" + pageOpen + ") && !" + noClose)
	alice.focusTerminal()
	alice.typing("echo $((6*7))\r")
	alice.untilScreen("42")

	alice.click("tab-plugin:docs") // is there still
	alice.until(pageOpen + " && " + fmt.Sprintf(frameOf, "docs") + `?.checkVisibility()`)
	relay.mu.Lock()
	once := relay.plugins.previews
	relay.plugins.broken = true
	relay.mu.Unlock()
	if once != 1 {
		t.Errorf("%d previews were opened for one page", once)
	}
	alice.click("tab-plugin:" + board.Name)
	alice.untilText("pages", "can’t be opened")
	relay.mu.Lock()
	relay.plugins.broken = false
	relay.mu.Unlock()
	alice.click("tab-plugin:" + board.Name)
	alice.until(fmt.Sprintf(frameOf, board.Name) + `?.checkVisibility()`)
	docs.Port = 3001 // it has started again
	relay.plug(docs)
	alice.until(`document.querySelector('[data-testid="tab-plugin:` + board.Name + `"]') === null`)
	alice.click("tab-plugin:docs")
	alice.until(fmt.Sprintf(frameOf, "docs") + `?.src.endsWith('port=3001')`)
	alice.run(phoneOf(390))
	alice.picture("plugin-phone")
	if n := len(eval[[]any](bob, `[...document.querySelectorAll('[data-testid^="tab-plugin"]')].map(String)`)); n != 0 {
		t.Errorf("bob, who may not see plugins, sees %d", n)
	}
	alice.check()
	bob.check()
	relay.check(t)
}
