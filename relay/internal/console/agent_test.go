package console_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol/op"
)

// hidden says in JavaScript that an element is not shown.
func hidden(id string) string {
	return `document.querySelector('[data-testid=` + id + `]').getClientRects().length === 0`
}

// An agent is started, paused, continued and stopped; while it works nobody
// types, and everybody sees why.
func testAgent(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	bob.until(hidden("agent") + " && " + hidden("btn-agent-start"))

	alice.click("btn-agent-start")
	alice.click("agent-droid")
	alice.untilText("hint", "droid is not installed")
	alice.click("btn-agent-start")
	alice.click("agent-claude")
	alice.untilText("agent-text", "Claude is working")
	for _, b := range []*tab{alice, bob} {
		b.untilText("controller", "Claude has control")
		b.untilText("agent-text", "Claude is working")
	}
	alice.until(hidden("btn-agent-resume") + " && " + hidden("btn-agent-start") + " && !(" + hidden("btn-agent-pause") + ")")
	bob.until(hidden("btn-agent-pause") + " && " + hidden("btn-agent-stop"))
	bob.focusTerminal()
	bob.typing("x")
	bob.untilText("hint", "Claude is working here")
	bob.until(hidden("btn-hint")) // may not pause it
	bob.click("btn-request")
	bob.untilText("btn-cancel", "Cancel request")

	// Whoever types is offered to pause it, and types then.
	alice.focusTerminal()
	alice.typing("l")
	alice.untilText("hint", "Claude is working here: pause it to type")
	alice.untilText("btn-hint", "Pause")
	alice.click("btn-hint")
	alice.untilText("agent-text", "Claude is paused")
	alice.untilText("controller", "You have control")
	alice.untilText("requests", "bob asks")
	alice.typing("echo $((6*7))\r")
	alice.untilScreen("\n42\n")
	bob.untilText("controller", "alice has control")

	alice.click("btn-agent-resume")
	bob.untilText("agent-text", "Claude is working")
	alice.click("btn-agent-stop")
	alice.run(chromedp.Click(chromedp.CSS("#ask-yes"), chromedp.NodeVisible))
	alice.untilText("agent-text", "Claude has ended")
	alice.untilText("controller", "You have control")

	// Any program will do.
	alice.click("btn-agent-start")
	alice.click("agent-custom")
	alice.until(`document.activeElement.id === 'custom-command'`)
	alice.typing("/opt/aider --yes\r")
	bob.untilText("agent-text", "aider is working")
	relay.mu.Lock()
	got := relay.ptys[0].started
	relay.mu.Unlock()
	if want := (op.AgentStart{Name: "aider", Command: "/opt/aider --yes"}); len(got) != 2 || got[1].Name != want.Name || got[1].Command != want.Command {
		t.Errorf("%+v", got)
	}

	// A newcomer sees it at once.
	carol := newTab(t, browser)
	carol.open(relay.link("carol"))
	carol.untilText("agent-text", "aider is working")
	carol.focusTerminal()
	carol.typing("x")
	carol.untilText("hint", "You are watching")
	for _, b := range []*tab{alice, bob, carol} {
		b.check()
	}
	relay.check(t)
}

// Whoever has no link can sign in where there is a provider, and out again.
func testSignIn(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser)
	alice.open(relay.URL + "/")
	alice.untilText("card", "Open the link you were given")
	alice.until(hidden("sign-in"))

	relay.mu.Lock()
	relay.signIn = "Example"
	relay.mu.Unlock()
	alice.open(relay.URL + "/?again")
	alice.untilText("sign-in", "Sign in with Example")
	if to := eval[string](alice, `document.querySelector('[data-testid=sign-in]').getAttribute('href')`); to != "/auth/login?return_to=/" {
		t.Errorf("the link goes to %s", to)
	}
	alice.open(relay.link("alice")) // where the provider sends people back to
	alice.untilText("controller", "You have control")
	alice.click("btn-sign-out")
	alice.untilText("sign-in", "Sign in with Example")
	if left := eval[int](alice, `sessionStorage.length`); left > 1 {
		t.Errorf("%d entries are left in the tab", left)
	}

	alice.open(relay.link("alice")) // which is worth nothing now
	alice.untilText("card", "not valid any more")
	alice.untilText("sign-in", "Sign in with Example")
	alice.check()
	relay.check(t)
}

// shotsOfAgent takes pictures of an agent's states.
func shotsOfAgent(alice *tab, phone bool, shot func(string)) {
	open := func() {
		if phone {
			alice.click("btn-more")
		}
		alice.click("btn-agent-start")
	}
	open()
	shot("9-agents")
	alice.click("agent-claude")
	alice.untilText("controller", "Claude has control")
	alice.focusTerminal()
	alice.typing("l")
	alice.untilText("hint", "pause it to type")
	shot("9-working")
	alice.click("btn-hint")
	alice.untilText("agent-text", "Claude is paused")
	alice.untilText("hint", "you can type")
	shot("9-paused")
	alice.click("btn-agent-stop")
	alice.run(chromedp.Click(chromedp.CSS("#ask-yes"), chromedp.NodeVisible))
	alice.untilText("hint", "has ended")
	open()
	alice.click("agent-custom")
	shot("9-custom")
	alice.eval(`document.querySelector('#custom-cancel').click()`)
}

// shotOfSignIn takes a picture of the page without a link.
func shotOfSignIn(t *testing.T, browser context.Context, path string, prepare ...step) {
	relay := newFakeRelay(t)
	relay.signIn = "Example"
	b := newTab(t, browser, prepare...)
	b.open(relay.URL + "/")
	b.untilText("sign-in", "Sign in with Example")
	b.shot(path)
}
