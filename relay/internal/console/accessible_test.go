package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// accessibleInUse checks what only shows when somebody does something: questions,
// menus, dialogs with something in them, cards, and what is said of an outage.
func accessibleInUse(t *testing.T, browser context.Context, prepare ...step) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.Capabilities...)
	pty := relay.pty("pty_1")
	relay.mu.Lock()
	relay.board.configured = fakeProviders
	relay.board.accounts["usr_alice"] = []fakeAccount{{ID: "acc_1", Provider: "github", Name: "octocat"}, {ID: "acc_2", Provider: "gmail", Name: "alice@example.com", Expired: true}}
	relay.board.attachments = []fakeAttachment{
		{"ses_demo", "pty_1", "github", "acc_1", "octocat", "usr_alice", false, json.RawMessage(`{"read_only":false}`)},
		{"ses_demo", "pty_1", "gmail", "acc_2", "alice@example.com", "usr_alice", true, json.RawMessage(`{"read_only":true}`)},
	}
	relay.approvals.rules = demoRules()
	relay.env.variables = []op.EnvVariable{{Name: "ACME_KEY", Secret: true, BrokerProtected: true, Domains: []string{"api.acme.example"}}, {Name: "PORT", PTYID: "pty_1"}}
	relay.addRecording(pty, time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC), events())
	relay.recordings[0].info.Note = "Ended early: the disk was full"
	relay.mu.Unlock()
	relay.put("/readme.md", "# readme")
	relay.put("/src/main.go", "package main")
	relay.output(pty, strings.Repeat("compiling package after package\r\n", 3000)+demo)
	alice, bob := newTab(t, browser, prepare...), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	bob.click("btn-request")
	alice.untilText("requests", "bob asks")
	alice.axe("a request for control")

	press := func(selector string) { alice.eval(fmt.Sprintf(`document.querySelector(%q).click()`, selector)) }
	// dialog checks one that a button opens, and closes it.
	dialog := func(button, id string, ready func()) {
		t.Helper()
		press(button)
		alice.until(fmt.Sprintf(`document.querySelector(%q)`, id+"[open]"))
		if ready != nil {
			ready()
		}
		alice.axe("the dialog " + id)
		alice.eval(fmt.Sprintf(`document.querySelector(%q).close()`, id))
	}
	// popover checks one that a button opens.
	popover := func(button, id string) {
		t.Helper()
		press(button)
		alice.until(fmt.Sprintf(`document.querySelector(%q).matches(":popover-open")`, id))
		alice.axe("the menu " + id)
	}
	popover(testid("viewers"), "#people-list")
	alice.eval(`document.querySelector("#people-list").hidePopover()`)
	if strings.Contains(t.Name(), "phone") {
		popover(testid("btn-more"), "#tools")
		alice.eval(`document.querySelector("#tools").hidePopover()`)
	}
	popover(testid("btn-agent-start"), "#agents")
	dialog(testid("agent-custom"), "#custom", nil)
	dialog(testid("btn-close-pty_1"), "#ask", nil)
	dialog(testid("btn-earlier"), "#earlier", func() {
		alice.untilText("earlier", "KiB")
		press("#earlier-find")
		alice.until(`document.querySelector("#earlier .search").checkVisibility()`)
	})
	dialog(testid("btn-env"), "#env", func() { alice.untilText("env-list", "ACME_KEY") })
	dialog(testid("btn-approvals"), "#egress", func() {
		alice.untilText("egress-rules", "categories")
		alice.eval(`document.querySelector("#egress details").open = true`)
	})
	dialog(testid("btn-recordings"), "#recordings", func() { alice.untilText("recording-rec_1", "disk was full") })

	press(testid("btn-files"))
	alice.untilText("files", "readme.md")
	alice.axe("a tree of files")
	press(testid("btn-rename-/readme.md"))
	alice.until(`document.activeElement.matches('[data-testid=files-name]')`)
	alice.axe("a file's new name")
	press(testid("btn-agent-panel"))
	alice.untilText("integration-github", "full access")
	alice.axe("the panel with accounts")
	dialog(testid("btn-change-github"), "#attach", func() {
		alice.eval(`(() => {
			document.querySelector("#attach-advanced").open = true;
			document.querySelector("#attach-policy").value = "{";
		})()`)
		press("#attach-save")
		alice.untilText("attach-problem", "not JSON")
	})

	relay.ask(protocol.Approval{ID: "apr_1", PTYID: "pty_1", Host: "xn--e1afmkfd.xn--p1ai", Port: 443}, time.Minute)
	relay.ask(protocol.Approval{ID: "apr_2", PTYID: "pty_1", Host: "two.example", Port: 443}, time.Minute)
	alice.untilText("approval-apr_1", "Deny always") // its buttons come a moment later
	relay.settle("apr_2", "usr_bob", protocol.DenyAlways)
	alice.untilText("approval-apr_2", "bob denied it always")
	alice.axe("approvals")
	press("#agent-panel-close")
	relay.browse(op.BrowserStatus{State: "running", URL: "https://one.example/", Title: "One", Tabs: []op.BrowserTab{
		{ID: 1, URL: "https://one.example/", Title: "One", Active: true}, {ID: 2, URL: "https://two.example/", Title: "Two"},
	}}, demoPage())
	press("#tool-browser")
	alice.untilText("browser-tabs", "Two")
	press("#browser-tabs [data-testid=browser-tab-2]")
	alice.untilText("browser-url", "two.example")
	alice.axe("the browser's tabs")
	press("#browser-close")

	relay.mu.Lock()
	pty.work("claude")
	relay.mu.Unlock()
	alice.untilText("agent-text", "working")
	alice.focusTerminal()
	alice.typing("l")
	alice.untilText("hint", "pause it to type")
	alice.axe("an agent at work")
	relay.mu.Lock()
	relay.down[relay.host()], relay.down[relay.other.Listener.Addr().String()] = true, true
	for s := range pty.sockets {
		s.drop(nil)
	}
	relay.mu.Unlock()
	alice.untilText("banner", "Reconnecting")
	alice.axe("an outage")
	alice.check()
}

// accessibleWithoutLink checks the cards of a page that nobody is known to.
func accessibleWithoutLink(t *testing.T, browser context.Context, prepare ...step) {
	relay := newFakeRelay(t)
	relay.signIn = "Example"
	nobody := newTab(t, browser, prepare...)
	nobody.open(relay.URL + "/")
	nobody.untilText("sign-in", "Sign in with Example")
	nobody.axe("the way to sign in")
	nobody.check()
	stranger := newTab(t, browser, prepare...)
	stranger.open(relay.link("nobody"))
	stranger.untilText("card", "not valid any more")
	stranger.axe("a link that is over")
}
