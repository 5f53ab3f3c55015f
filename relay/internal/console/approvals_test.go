package console_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol"
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
	relay.env.variables = []protocol.EnvVariable{
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
