package console_test

import (
	"context"
	"testing"
)

// Found 23: the answers to a new terminal are lost, again and again. The console
// says that it isn't known and offers to ask, by the same key: there is one
// terminal in the end, which is the one that it shows. The next one is another.
func testUnknownOutcome(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")

	const mostAsked = 8 // by itself
	relay.mu.Lock()
	relay.unknown = mostAsked
	relay.mu.Unlock()
	alice.click("btn-new")
	alice.untilText("hint", "known whether this was done")
	alice.untilText("btn-hint", "Ask again")
	alice.click("btn-hint")
	alice.until(`document.querySelectorAll('[role=tab]').length === 2`)
	alice.untilText("controller", "You have control")

	relay.mu.Lock()
	keys, terminals := len(relay.made), len(relay.ptys)
	relay.mu.Unlock()
	if keys != 1 || terminals != 2 {
		t.Errorf("asked by %d keys, %d terminals", keys, terminals)
	}
	alice.click("btn-new")
	alice.until(`document.querySelectorAll('[role=tab]').length === 3`)
	alice.check()
}
