package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Those who may approve see at once what is asked for, decide, and see who was
// first; the terminal keeps the focus.
func testApprovals(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapApprove)
	relay.give("ut_bob", protocol.CapApprove)
	alice, bob, carol := newTab(t, browser), newTab(t, browser), newTab(t, browser)
	for user, b := range map[string]*tab{"alice": alice, "bob": bob, "carol": carol} {
		b.open(relay.link(user))
		b.untilText("controller", "control")
	}
	alice.untilText("controller", "You have control")
	alice.focusTerminal()
	alice.typing("a")
	ends := time.Now().Add(110 * time.Second) // less than what is shown in minutes
	relay.ask(protocol.Approval{ID: "apr_1", PTYID: "pty_1", Host: "unknown.example", Port: 443}, time.Until(ends))
	for _, b := range []*tab{alice, bob} {
		b.untilText("approval-apr_1", "unknown.example:443")
		b.untilText("approval-apr_1", "shell wants to connect to")
		b.untilText("approvals-count", "1 approval")
		b.until(`document.title.startsWith('● unknown.example')`)
		b.until(fmt.Sprintf(`Math.abs(/\b(\d+) s/.exec(document.querySelector('[data-testid=approval-apr_1] .left').innerText)?.[1] - (%d - Date.now()) / 1000) < 3`, ends.UnixMilli()))
	}
	alice.typing("b")
	alice.untilScreen("$ ab") // the focus stayed

	bob.click("btn-allow-once-apr_1")
	bob.untilText("approval-apr_1", "You allowed it once")
	alice.untilText("approval-apr_1", "bob allowed it once")
	alice.until(hidden("btn-deny-apr_1") + " && " + hidden("approvals-count"))
	alice.until(`!document.title.startsWith('●')`)

	// Two at once: bob is first, alice is told.
	relay.ask(protocol.Approval{ID: "apr_2", Host: "xn--e1afmkfd.xn--p1ai", Port: 8443}, 10*time.Minute)
	alice.untilText("approval-apr_2", "xn--e1afmkfd.xn--p1ai:8443")
	alice.untilText("approval-apr_2", "reads as пример.рф")
	relay.mu.Lock()
	relay.approvals.lost = 1 // taken, but alice's browser gets no answer
	relay.mu.Unlock()
	alice.click("btn-deny-always-apr_2")
	alice.untilText("approval-apr_2", "You denied it always")
	bob.untilText("approval-apr_2", "alice denied it always")

	// Nobody decides.
	relay.ask(protocol.Approval{ID: "apr_3", PTYID: "pty_1", Host: "api.example.com", Secret: "ACME_KEY", Kind: protocol.ApprovalBroker}, 10*time.Minute)
	alice.untilText("approval-apr_3", "wants to send the secret ACME_KEY to")
	alice.untilText("approval-apr_3", "10 min")
	relay.expire("apr_3")
	alice.untilText("approval-apr_3", "Expired: denied")

	// Whoever isn't sure puts it off.
	relay.ask(protocol.Approval{ID: "apr_5", PTYID: "pty_1", Host: "later.example", Port: 22}, 10*time.Minute)
	alice.click("btn-later-apr_5")
	alice.until(`document.querySelector('[data-testid=approval-apr_5]') === null`)
	alice.untilText("approvals-count", "1 approval")
	alice.click("approvals-count")
	alice.click("btn-allow-once-apr_5")
	alice.untilText("approval-apr_5", "You allowed it once")

	// Keys alone: F6 leads to the card, Escape back.
	relay.ask(protocol.Approval{ID: "apr_4", PTYID: "pty_1", Host: "keys.example", Port: 22}, 10*time.Minute)
	alice.untilText("approval-apr_4", "keys.example:22")
	alice.focusTerminal()
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('[data-testid=approval-apr_4]')`)
	alice.typing(kb.Escape)
	alice.until(`document.activeElement.matches('.xterm-helper-textarea')`)
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('[data-testid=approval-apr_4]')`)
	alice.until(`!(` + hidden("btn-deny-apr_4") + `)`) // after a moment
	alice.run(focus("btn-deny-apr_4"))
	alice.typing("\r")
	alice.untilText("approval-apr_4", "You denied it")
	alice.until(`document.activeElement.matches('.xterm-helper-textarea')`)

	if shown := eval[bool](carol, `document.querySelector('[data-testid^="approval-"]') !== null || document.title.includes('●')`); shown {
		t.Error("carol, who may not decide, is asked")
	}
	for _, b := range []*tab{alice, bob, carol} {
		b.check()
	}
	relay.check(t)
}

const conversation = protocol.ConversationID("5b0d8d43-6c1a-4dd5-9a2e-7f3b1c2d4e5f")

// tool is a coding agent's question.
func tool(id, name, input string) protocol.Approval {
	return protocol.Approval{
		ID: id, Kind: protocol.ApprovalTool, ConversationID: conversation, RunID: "cmd_1", Tool: name,
		Input: json.RawMessage(input), InputSHA256: strings.Repeat("ab", 32),
	}
}

// shown is the expression that an element can be seen.
func shown(id string) string { return `!(` + hidden(id) + `)` }

// A coding agent's questions show what its tool is to do, as text; they are
// allowed, denied with a reason, remembered, and go when somebody else decides,
// time is up or the run is over.
func testToolApprovals(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapApprove)
	relay.give("ut_bob", protocol.CapApprove)
	alice, bob := newTab(t, browser), newTab(t, browser)
	for user, b := range map[string]*tab{"alice": alice, "bob": bob} {
		b.open(relay.link(user))
		b.untilText("controller", "control")
	}
	words := func() string {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		return strings.Join(relay.approvals.words, ", ")
	}
	const hostile = `{"command":"git status\n\t<img src=x onerror=alert(1)> \u202e\u001b[31m","description":"looks"}`
	relay.ask(tool("apr_1", "Bash", hostile), 55*time.Second)
	alice.untilText("approval-apr_1", "The coding agent in conversation 5b0d8d43 wants to use")
	alice.untilText("approval-apr_1", "<img src=x onerror=alert(1)> ⟨U+202E⟩⟨U+001B⟩[31m")
	alice.untilText("approval-apr_1", "as the coding agent says\nlooks")
	alice.until(`document.title.startsWith('● Bash')`)
	alice.until(`document.querySelector('[data-testid=approval-apr_1] img') === null`)
	relay.ask(tool("apr_0", "Edit", `{"file_path":"/srv/app/main.go","old_string":"\treturn nil\n","new_string":"\tif err != nil {\n\t\treturn err\n\t}\n","replace_all":false}`), 55*time.Second)
	alice.untilText("approval-apr_0", "+ ")
	alice.click("always-apr_1")
	alice.click("why-apr_1")
	alice.run(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1400, Height: 900, DeviceScaleFactor: 1}))
	alice.until(`innerWidth === 1400 && ` + shown("btn-deny-reason-apr_1") + ` && ` + shown("btn-allow-once-apr_0"))
	alice.picture("tools-desktop")
	bob.untilText("approval-apr_0", "+ ")
	bob.run(phone()...)
	bob.until(`innerWidth === 390`)
	bob.click("always-apr_0")
	bob.until(shown("btn-allow-always-apr_0"))
	bob.picture("tools-phone")
	relay.expire("apr_0")
	alice.until(`/\d+ s/.test(document.querySelector('[data-testid=approval-apr_1] .left').innerText)`)
	alice.click("btn-allow-once-apr_1")
	alice.untilText("approval-apr_1", "You allowed it once")
	bob.untilText("approval-apr_1", "alice allowed it once")

	relay.ask(tool("apr_2", "Edit", `{"file_path":"/w/main.go","old_string":"old line","new_string":"new line"}`), 10*time.Minute)
	for _, want := range []string{"/w/main.go", "- old line", "+ new line"} {
		alice.untilText("approval-apr_2", want)
	}
	alice.click("why-apr_2")
	alice.until(shown("btn-deny-reason-apr_2"))
	alice.run(focus("reason-apr_2"))
	alice.typing("not in this file")
	alice.typing("\r")
	alice.untilText("approval-apr_2", "You denied it")
	bob.untilText("approval-apr_2", "alice denied it")

	relay.ask(tool("apr_3", "Bash", `{"command":"git status --short"}`), 10*time.Minute)
	alice.click("always-apr_3")
	alice.until(`document.querySelector('[data-testid=rule-of-apr_3]').innerText.includes('begin with git status')`)
	alice.eval(`document.querySelector('[data-testid=rule-where-apr_3]').value = 'allow_always'`)
	alice.click("btn-allow-always-apr_3")
	alice.untilText("approval-apr_3", "You allowed it always")
	if got, want := words(), "deny not in this file, allow_always Bash(git status:*)"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}

	// It waits without limit, and is answered in the conversation.
	relay.ask(tool("apr_4", "AskUserQuestion", `{"questions":[{"question":"Which one?"}]}`), 0)
	alice.untilText("approval-apr_4", "waits without limit")
	alice.untilText("approval-apr_4", "It is answered in the conversation")
	alice.until(hidden("btn-allow-once-apr_4") + " && " + hidden("always-apr_4"))
	relay.cancel("apr_4")
	alice.untilText("approval-apr_4", "Not needed any more")
	bob.untilText("approval-apr_4", "Not needed any more")

	large := tool("apr_5", "Write", "")
	large.Input = nil
	relay.ask(large, 10*time.Minute)
	alice.untilText("approval-apr_5", "too long to be shown here")
	relay.expire("apr_5")
	alice.untilText("approval-apr_5", "Expired: denied")
	for _, b := range []*tab{alice, bob} {
		b.check()
	}
	relay.check(t)
}

// A stream that breaks goes on where it was, and a decision is sent until it is
// answered; without the control plane nothing can be decided.
func testApprovalOutage(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapApprove)
	relay.ask(protocol.Approval{ID: "apr_0", PTYID: "pty_1", Host: "before.example", Port: 443}, 10*time.Minute)
	relay.settle("apr_0", "usr_bob", protocol.AllowAlways)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	relay.ask(protocol.Approval{ID: "apr_1", PTYID: "pty_1", Host: "one.example", Port: 443}, 10*time.Minute)
	relay.ask(protocol.Approval{ID: "apr_2", PTYID: "pty_1", Host: "two.example", Port: 443}, 10*time.Minute)
	alice.untilText("approval-apr_2", "two.example")
	set := func(refused error) {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		relay.approvals.refused = refused
	}

	set(protocol.Errorf(protocol.KindUnavailable, "it can't be decided now: the control plane doesn't answer"))
	alice.click("btn-allow-once-apr_1")
	alice.untilText("approval-apr_1", "Nothing can be decided: the control plane can’t be reached")
	alice.untilText("approval-apr_2", "Nothing can be decided")
	set(nil)
	alice.click("btn-allow-once-apr_1")
	alice.untilText("approval-apr_1", "You allowed it once")
	alice.until(`!document.querySelector('[data-testid=approval-apr_2]').innerText.includes('Nothing can be decided')`)

	set(protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected"))
	alice.click("btn-deny-apr_2")
	alice.untilText("approval-apr_2", "the sandbox is not connected: trying again")
	set(nil)
	alice.untilText("approval-apr_2", "You denied it")
	relay.mu.Lock()
	keys := relay.approvals.keys
	relay.mu.Unlock()
	if keys[0] != keys[1] || keys[1] == keys[2] || keys[2] != keys[len(keys)-1] {
		t.Errorf("keys %q", keys)
	}

	relay.until(t, "all is told", func() bool { return relay.approvals.told == len(relay.approvals.events) })
	relay.cutApprovals()
	relay.ask(protocol.Approval{ID: "apr_3", PTYID: "pty_1", Host: "three.example", Port: 443}, 10*time.Minute)
	alice.untilText("approval-apr_3", "three.example")
	relay.until(t, "a second stream", func() bool { return len(relay.approvals.sinces) > 1 })
	relay.mu.Lock()
	since := relay.approvals.sinces[1]
	relay.mu.Unlock()
	if want := fmt.Sprint(protocol.Position{Offset: 6}); since != want {
		t.Errorf("the stream went on from %q, not %q", since, want)
	}

	relay.cut(relay.pty("pty_1"), true)
	relay.cutApprovals()
	alice.untilText("approvals", "Not connected: what is asked for now is not shown")
	relay.ask(protocol.Approval{ID: "apr_4", PTYID: "pty_1", Host: "four.example", Port: 443}, 10*time.Minute)
	relay.expire("apr_3")
	relay.reopen()
	alice.untilText("approval-apr_4", "four.example")
	alice.untilText("approval-apr_3", "Expired: denied")
	alice.until(`!document.querySelector('[data-testid=approvals]').innerText.includes('Not connected')`)
	alice.check()
	relay.check(t)
}

// shotsOfApprovals takes pictures of what is asked for, of the rules, and of
// variables.
func shotsOfApprovals(t *testing.T, browser context.Context, prefix string, prepare ...step) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapApprove, protocol.CapEnv)
	relay.mu.Lock()
	relay.ptys[0].info.Egress = protocol.EgressEnforced
	relay.approvals.rules = demoRules()
	relay.env.variables = []op.EnvVariable{
		{Name: "ANTHROPIC_API_KEY", Secret: true, BrokerProtected: true}, {Name: "PORT", PTYID: "pty_1"},
		{Name: "ACME_KEY", Secret: true, BrokerProtected: true, Domains: []string{"api.acme.example"}},
	}
	relay.mu.Unlock()
	relay.output(relay.ptys[0], strings.Repeat(demo, 8)+"$ curl https://unknown.example")
	alice := newTab(t, browser, prepare...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	shot := func(name string) {
		t.Helper()
		alice.until(`document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getComputedTiming().iterations === Infinity)`)
		alice.shot(prefix + "-" + name + ".png")
	}
	open := func(id string) {
		if strings.Contains(prefix, "phone") {
			alice.click("btn-more")
		}
		alice.click(id)
	}
	relay.ask(protocol.Approval{ID: "apr_1", PTYID: "pty_1", Host: "unknown.example", Port: 443}, time.Minute)
	alice.untilText("approval-apr_1", "unknown.example")
	shot("11-asked")
	relay.ask(protocol.Approval{ID: "apr_2", Host: "xn--e1afmkfd." + strings.Repeat("a-very-long-name-", 7) + "example.org", Port: 8443}, time.Minute)
	relay.ask(protocol.Approval{ID: "apr_3", PTYID: "pty_1", Host: "api.example.com", Secret: "ACME_KEY", Kind: protocol.ApprovalBroker}, 10*time.Minute)
	relay.mu.Lock()
	relay.approvals.refused = protocol.Errorf(protocol.KindUnavailable, "it can't be decided now: the control plane doesn't answer")
	relay.mu.Unlock()
	relay.settle("apr_1", "usr_bob", protocol.AllowOnce)
	alice.click("btn-deny-apr_3")
	alice.untilText("approval-apr_3", "Nothing can be decided")
	shot("11-several")
	relay.settle("apr_2", "usr_bob", protocol.DenyAlways)
	relay.expire("apr_3")
	alice.untilText("approval-apr_3", "Expired")
	open("btn-approvals")
	alice.untilText("egress-rules", "categories")
	alice.eval(`document.querySelector('#egress details').open = true`)
	shot("11-rules")
	alice.eval(`document.querySelector('#egress .close').click()`)
	open("btn-env")
	alice.untilText("env-list", "PORT")
	alice.typing("ACME_KEY")
	alice.click("env-protected")
	shot("12-env")
	alice.eval(`(() => {
		const data = new DataTransfer();
		data.setData('text/plain', 'PORT=8080\nOPENAI_API_KEY="sk-openai-1"\nSTAGING_DATABASE_PASSWORD=token-value-1\nwhat');
		document.querySelector('[data-testid=env-name]').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
	})()`)
	alice.untilText("env-many", "PORT")
	shot("12-env-file")
	alice.eval(`document.querySelector('#env .close').click()`)
	alice.focusTerminal()
	relay.mu.Lock()
	relay.ptys[0].broadcast(protocol.OutputHeld{Held: true})
	relay.mu.Unlock()
	alice.untilText("output-held", "secret")
	shot("13-held")
	alice.check()
	relay.check(t)
}
