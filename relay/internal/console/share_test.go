package console_test

import (
	"context"
	"fmt"
	"testing"
)

// Who may control a terminal opens it to other terminals' programs, after a
// question; everybody sees that it is open, also who comes later.
func testShare(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	const (
		marked   = `!document.querySelector('[data-testid=shared]').hidden`
		choosing = `(() => { const s = document.querySelector('[data-testid=select-share]'); s.value = %q; s.dispatchEvent(new Event('change')); return true })()`
		chosen   = `document.querySelector('[data-testid=select-share]').value === %q`
	)
	alice.until(`!document.querySelector('[data-testid=select-share]').closest('label').hidden && ` + fmt.Sprintf(chosen, "none"))
	alice.until("!(" + marked + ")")
	alice.until(fmt.Sprintf(choosing, "session"))
	alice.eval(`document.querySelector("#ask-no").click()`)
	alice.until(fmt.Sprintf(chosen, "none"))
	alice.until(fmt.Sprintf(choosing, "session"))
	alice.eval(`document.querySelector("#ask-yes").click()`)
	carol := newTab(t, browser)
	carol.open(relay.link("bob"))
	for _, tab := range []*tab{alice, bob, carol} {
		tab.until(marked)
		tab.untilText("shared", "Open to all programs here")
	}
	alice.until(fmt.Sprintf(chosen, "session"))
	alice.until(fmt.Sprintf(choosing, "none")) // without a question
	bob.until("!(" + marked + ")")
	for _, tab := range []*tab{alice, bob, carol} {
		tab.check()
	}
	relay.check(t)
}
