package console_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// Variables and secrets are set, replaced and unset; no value stays in the page.
func testEnvironment(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapEnv)
	relay.add("pty_2", "usr_alice", "/usr/bin/htop")
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	fill := func(name, value string) {
		t.Helper()
		alice.run(focus("env-name"))
		alice.typing(name)
		alice.run(focus("env-value"))
		alice.typing(value)
	}
	checked := func(id string) string { return `document.querySelector('` + testid(id) + `').checked` }
	alice.click("btn-env")
	alice.until(`document.activeElement.matches('[data-testid=env-name]') && document.querySelector('[data-testid=env-value]').type === 'password'`)
	fill("ANTHROPIC_API_KEY", "short")
	alice.until(checked("env-secret") + " && " + checked("env-protected") + " && document.querySelector('[data-testid=env-domains]').getClientRects().length === 0")
	alice.click("env-save")
	alice.untilText("env-problem", "a secret has 8 bytes at least")
	alice.run(focus("env-value"))
	alice.typing("-sk-ant-1234\r")
	alice.untilText("env-list", "ANTHROPIC_API_KEY")
	alice.untilText("env-list", "secret · broker only")

	// A secret of one's own, for one terminal, with the host it may go to.
	fill("ACME_KEY", "acme-value-1")
	alice.until("!" + checked("env-protected"))
	alice.click("env-protected")
	alice.run(focus("env-domains"))
	alice.typing("api.acme.example")
	alice.eval(`document.querySelector('[data-testid=env-scope]').value = 'pty_2'`)
	alice.click("env-apply-now")
	alice.click("env-save")
	alice.untilText("env-ACME_KEY", "secret · broker only · to api.acme.example · only htop")

	// What the server refuses is said.
	fill("PATH", "/opt/bin")
	alice.click("env-secret")
	alice.click("env-save")
	alice.untilText("env-problem", "PATH is set by the sandbox itself")
	alice.eval(`document.querySelector('#env .close').click()`)
	alice.click("btn-env")
	alice.until(`document.querySelector('[data-testid=env-value]').value === '' && ` + checked("env-secret"))

	// A .env file.
	alice.eval(`(() => {
		const data = new DataTransfer();
		data.setData('text/plain', '# mine\nexport PORT=8080\nOPENAI_API_KEY="sk-openai-1"\nTOKEN=token-value-1 # of staging\n');
		document.querySelector('[data-testid=env-name]').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
	})()`)
	alice.untilText("env-many", "TOKEN")
	alice.eval(`document.querySelector('[data-testid=env-scope]').value = ''`)
	alice.click("env-save")
	alice.untilText("env-TOKEN", "secret")
	alice.untilText("env-PORT", "plain")
	alice.untilText("env-OPENAI_API_KEY", "broker only")
	if left := eval[bool](alice, `[document.body.innerHTML, ...[...document.querySelectorAll('input')].map((i) => i.value), JSON.stringify(sessionStorage), JSON.stringify(localStorage)].some((text) => /sk-ant|sk-openai|acme-value|token-value/.test(text))`); left {
		t.Error("a value is still in the page")
	}

	alice.click("btn-unset-ACME_KEY")
	alice.run(chromedp.Click(chromedp.CSS("#ask-yes"), chromedp.NodeVisible))
	alice.until(`document.querySelector('[data-testid=env-ACME_KEY]') === null`)
	relay.mu.Lock()
	defer relay.mu.Unlock()
	want := map[string]string{"ANTHROPIC_API_KEY": "short-sk-ant-1234", "ACME_KEY": "acme-value-1", "PORT": "8080", "OPENAI_API_KEY": "sk-openai-1", "TOKEN": "token-value-1"}
	for name, value := range want {
		if got := relay.env.values[name]; got != value {
			t.Errorf("%s is %q, not %q", name, got, value)
		}
	}
	if want := []bool{false, true, false, false}; !slices.Equal(relay.env.applied, want) {
		t.Errorf("applied now: %v, not %v", relay.env.applied, want)
	}
	alice.check()
	for _, fault := range relay.faults {
		t.Error(fault)
	}
}

// The rules about what may leave are shown, and taken back.
func testEgress(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapApprove)
	relay.mu.Lock()
	relay.ptys[0].info.Egress = protocol.EgressAdvisory
	relay.approvals.rules = demoRules()
	relay.mu.Unlock()
	relay.ask(protocol.Approval{ID: "apr_0", PTYID: "pty_1", Host: "before.example", Port: 443}, 0)
	relay.settle("apr_0", "usr_bob", protocol.AllowAlways)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.until(`document.querySelector('.foot').innerText.includes('egress advisory') && document.querySelector('[data-testid=tab-pty_1]').title.includes('egress advisory')`)
	alice.click("btn-approvals")
	alice.untilText("egress-state", "a program that ignores it gets out unasked (no root).")
	alice.untilText("approvals-log", "before.example:443")
	alice.untilText("approvals-log", "allowed it always")
	alice.until(`!document.querySelector('[data-testid=egress-rules]').innerText.includes('registry.npmjs.org')`) // folded
	alice.untilText("egress-rules", "5 hosts in 2 categories")
	alice.click("btn-revoke-*.acme.example")
	alice.until(`document.querySelector('[data-testid="rule-*.acme.example"]') === null`)
	alice.untilText("egress-rules", "tracker.example")
	relay.mu.Lock()
	revoked := strings.Join(relay.approvals.revoked, " ")
	relay.mu.Unlock()
	if revoked != "*.acme.example" {
		t.Errorf("revoked: %s", revoked)
	}
	alice.check()
	relay.check(t)
}

func demoRules() protocol.EgressRules {
	return protocol.EgressRules{
		State: protocol.EgressAdvisory, Why: "no root",
		Defaults: []protocol.EgressCategory{
			{Name: "packages", Patterns: []string{"registry.npmjs.org", "pypi.org", "proxy.golang.org"}},
			{Name: "code hosting", Patterns: []string{"github.com", "*.github.com"}},
		},
		User: []string{"*.acme.example", "before.example"}, Denied: []string{"tracker.example"},
	}
}

// Whoever types is told that an echo waits.
func testHeld(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	say := func(held bool) {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		relay.ptys[0].broadcast(protocol.OutputHeld{Held: held})
	}
	say(true)
	alice.untilText("output-held", "may be the beginning of a secret")
	bob.until(hidden("output-held"))
	say(false)
	alice.until(hidden("output-held"))
	alice.check()
	bob.check()
	relay.check(t)
}
