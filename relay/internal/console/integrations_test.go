package console_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Accounts are connected, attached to a terminal, given rules and detached by
// whoever may; others see what is attached.
func testIntegrations(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.mu.Lock()
	relay.board.roles["usr_carol"] = "viewer"
	relay.board.consent = "https://github.example/login?state=1"
	relay.mu.Unlock()
	alice, carol := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.click("btn-agent-panel")
	alice.untilText("integration-github", "Not attached")
	alice.until(`document.querySelector('[data-testid=integration-google_drive]') === null`) // not set up

	// Connecting happens in another window; coming back is enough.
	alice.click("btn-attach-github")
	alice.untilText("attach", "None is connected yet")
	alice.until(`document.querySelector('[data-testid=attach-save]').disabled && document.querySelector('[data-testid=attach-read]').checked`)
	alice.click("attach-connect")
	alice.untilText("attach-consent", "Continue at github.example")
	alice.until(`document.querySelector('[data-testid=attach-consent]').rel === 'noopener noreferrer' && document.cookie.includes('fairlead_connect')`)
	relay.mu.Lock()
	relay.board.accounts["usr_alice"] = []fakeAccount{{ID: "acc_1", Provider: "github", Name: "octocat"}}
	relay.mu.Unlock()
	alice.eval(`window.dispatchEvent(new Event('focus'))`)
	alice.until(`document.activeElement.matches('[data-testid=attach-save]') && document.querySelector('[data-testid=attach-account]').innerText.includes('octocat')`)
	alice.typing("\r")
	alice.untilText("integration-github", "octocat · read only")
	policy := func(want string) {
		t.Helper()
		relay.until(t, "the policy is "+want, func() bool {
			var got any
			if len(relay.board.attachments) != 1 || json.Unmarshal(relay.board.attachments[0].Policy, &got) != nil {
				return false
			}
			data, err := json.Marshal(got)
			return err == nil && string(data) == want
		})
	}
	policy(`{"read_only":true}`)

	// Everybody else sees it, and changes nothing.
	carol.open(relay.link("carol"))
	carol.untilText("controller", "alice has control")
	carol.click("btn-agent-panel")
	carol.untilText("integration-github", "octocat · lent by alice · read only")
	carol.until(hidden("btn-change-github") + " && " + hidden("btn-detach-github") + ` && document.querySelector('[data-testid=integration-gmail]') === null`)

	// Rules, by choice and as JSON.
	alice.click("btn-change-github")
	alice.click("attach-full")
	alice.until(`document.querySelector('[data-testid=attach-policy]').value.includes('"read_only": false')`)
	alice.click("attach-advanced")
	alice.eval(`(() => {
		const text = document.querySelector('[data-testid=attach-policy]');
		text.value = '{"read_only": true, "github": {"repos": ["owner/*"]}';
		text.dispatchEvent(new Event('input'));
	})()`)
	alice.click("attach-save")
	alice.untilText("attach-problem", "not JSON")
	alice.run(focus("attach-policy"))
	alice.eval(`(() => {
		const text = document.querySelector('[data-testid=attach-policy]');
		text.value += '}';
		text.dispatchEvent(new Event('input'));
	})()`)
	alice.until(`document.querySelector('[data-testid=attach-read]').checked && document.querySelector('[data-testid=attach-problem]').innerText === ''`)
	alice.click("attach-save")
	alice.untilText("integration-github", "octocat · read only, with rules")
	policy(`{"github":{"repos":["owner/*"]},"read_only":true}`)

	alice.click("btn-detach-github")
	alice.run(chromedp.Click(chromedp.CSS("#ask-yes"), chromedp.NodeVisible))
	alice.untilText("integration-github", "Not attached")
	carol.until(`document.querySelector('[data-testid=integration-github]') === null`) // told by the tools

	// What the control plane refuses is said.
	relay.mu.Lock()
	relay.board.refused = protocol.Errorf(protocol.KindUnavailable, "integrations are off: there is no vault key")
	relay.mu.Unlock()
	alice.click("btn-agent-panel-close")
	alice.click("btn-agent-panel")
	alice.untilText("integrations-note", "there is no vault key")
	alice.check()
	carol.check()
	relay.check(t)
}

// shotsOfPanels takes pictures of an agent that waits, of what it may use, and of
// the browser.
func shotsOfPanels(t *testing.T, browser context.Context, prefix string, prepare ...step) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapMCP, protocol.CapEnv, protocol.CapApprove)
	pty := relay.pty("pty_1")
	relay.mu.Lock()
	relay.board.configured = fakeProviders
	relay.board.accounts["usr_alice"] = []fakeAccount{{ID: "acc_1", Provider: "github", Name: "alice-octocat"}, {ID: "acc_2", Provider: "gmail", Name: "alice@example.com", Expired: true}}
	relay.board.attachments = []fakeAttachment{
		{"ses_demo", "pty_1", "github", "acc_1", "alice-octocat", "usr_alice", false, json.RawMessage(`{"read_only":false,"github":{"repos":["fairlead/*"]}}`)},
		{"ses_demo", "pty_1", "google_drive", "acc_9", "robert.longlastname@a-company-of-some-size.example", "usr_bob", false, json.RawMessage(`{"read_only":true}`)},
		{"ses_demo", "pty_1", "gmail", "acc_2", "alice@example.com", "usr_alice", true, json.RawMessage(`{"read_only":true}`)},
	}
	relay.mu.Unlock()
	relay.output(pty, strings.Repeat(demo, 8)+"\x1b[1m>\x1b[0m ")
	alice := newTab(t, browser, prepare...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	shot := func(name string) {
		t.Helper()
		alice.until(`document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getComputedTiming().iterations === Infinity)`)
		alice.shot(prefix + "-" + name + ".png")
	}
	phone := strings.Contains(prefix, "phone")
	open := func(id string) {
		if phone {
			alice.click("btn-more")
		}
		alice.click(id)
	}
	relay.mu.Lock()
	pty.work("claude")
	relay.mu.Unlock()
	alice.untilText("agent-text", "working")
	relay.finish(pty, protocol.AgentStoppedMessage{
		Agent: "claude-code", Reason: protocol.StopComplete, Timestamp: 1_773_480_413_000,
		LastMessage: "The failing test was TestReplayKeyframe: the keyframe was cut in the middle of a UTF-8 sequence.\n\nI fixed it in relay/internal/replay/keyframe.go and added a test for it:\n\n- characters of two, three and four bytes\n- a combining mark at the cut\n\nAll tests pass. Shall I commit this?",
	})
	alice.untilText("hint", "waiting")
	alice.focusTerminal()
	alice.typing("yes")
	shot("14-waiting")
	alice.click("btn-agent-details")
	alice.untilText("integration-github", "full access")
	alice.untilText("agent-tools", "Tools")
	alice.until(`!document.querySelector('[data-testid=hint]').classList.contains('shown')`)
	shot("14-panel")
	alice.eval(`document.querySelector('.side-body').scrollTop = 1e6`)
	shot("14-panel-end")
	alice.click("btn-change-github")
	alice.eval(`document.querySelector('#attach-advanced').open = true`)
	shot("14-attach")
	alice.eval(`document.querySelector('#attach').close()`)
	alice.click("btn-agent-panel-close")
	open("btn-browser")
	alice.untilText("browser-empty", "not running")
	shot("15-browser-none")
	relay.browse(op.BrowserStatus{State: "running", URL: "https://docs.example.com/guide/getting-started?tab=linux", Title: "Getting started · Example"}, demoPage())
	alice.untilText("browser-url", "docs.example.com")
	alice.until(`document.querySelector('[data-testid=browser-picture]').width === 1280`)
	shot("15-browser")
	relay.browse(op.BrowserStatus{State: "running", URL: "https://docs.example.com/guide/getting-started?tab=linux", Title: "Getting started · Example", Tabs: []op.BrowserTab{
		{ID: 1, URL: "https://docs.example.com/guide/getting-started?tab=linux", Title: "Getting started · Example", Active: true},
		{ID: 2, URL: "https://shop.example/cart", Title: "Your cart"}, {ID: 5, URL: "about:blank"}, {ID: 7, URL: "https://news.example/", Title: "News of the day, and what they mean for everybody"},
	}}, demoPage())
	alice.untilText("browser-tabs", "Your cart")
	alice.click("browser-tab-2")
	alice.until(`document.querySelector('[data-testid=browser-picture]').width === 1280`)
	shot("15-browser-tabs")
	if !phone {
		alice.click("btn-browser-large")
		shot("15-browser-large")
	}
	alice.check()
	relay.check(t)
}
