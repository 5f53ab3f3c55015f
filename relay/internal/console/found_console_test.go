package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol"
)

// axeFindings is what axe-core says of the page.
type axeFinding struct {
	ID     string
	Impact string
	Help   string
	Nodes  []struct {
		Target  []any
		HTML    string
		Summary string `json:"failureSummary"`
	}
}

// axe checks the page as it is by axe-core's rules, all of them.
func (b *tab) axe(where string) {
	b.Helper()
	b.until(`document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getComputedTiming().iterations === Infinity)`)
	eval[any](b, `(window.found = undefined, axe.run({exclude: [".xterm"]}, {resultTypes: ["violations"]})
		.then(({violations}) => { window.found = JSON.stringify(violations) }, (error) => { window.found = JSON.stringify([{id: "error", help: String(error), nodes: []}]) }), null)`)
	b.until(`window.found`)
	var findings []axeFinding
	if err := json.Unmarshal([]byte(eval[string](b, `window.found`)), &findings); err != nil {
		b.Fatal(err)
	}
	for _, f := range findings {
		for _, n := range f.Nodes {
			b.Errorf("%s: %s (%s): %s: %.300s\n%s", where, f.ID, f.Impact, f.Help, n.HTML, n.Summary)
		}
		if len(f.Nodes) == 0 {
			b.Errorf("%s: %s: %s", where, f.ID, f.Help)
		}
	}
}

// axeCore is axe-core's source, for the pages that a tab opens.
func axeCore(t *testing.T) step {
	t.Helper()
	source, err := os.ReadFile("web/node_modules/axe-core/axe.min.js")
	if err != nil {
		missing(t, "axe-core is missing: go run ./relay/internal/console/build")
	}
	return command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: string(source)})
}

// The page, its dialogs, panels, menus and cards break none of axe-core's rules,
// wide and on a phone. What a terminal shows is its programs', and not checked.
func TestFound20Accessible(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	for name, prepare := range map[string][]step{"wide": nil, "phone": phone()} {
		prepare = append(prepare, axeCore(t))
		t.Run(name, func(t *testing.T) { accessible(t, browser, prepare...) })
		t.Run(name+" in use", func(t *testing.T) { accessibleInUse(t, browser, prepare...) })
		t.Run(name+" without a link", func(t *testing.T) { accessibleWithoutLink(t, browser, prepare...) })
	}
}

func accessible(t *testing.T, browser context.Context, prepare ...step) {
	relay := newFakeRelay(t)
	relay.mu.Lock()
	relay.users["ut_alice"] = fakeUser{"usr_alice", "alice", protocol.Capabilities}
	relay.mu.Unlock()
	relay.output(relay.pty("pty_1"), demo)
	relay.add("pty_2", "usr_alice", "vim")
	alice := newTab(t, browser, prepare...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.untilScreen("warning")
	alice.axe("the page")
	open := func(id string) { alice.eval(fmt.Sprintf(`document.querySelector(%q).click()`, testid(id))) }
	for _, id := range strings.Fields("btn-files btn-agent-panel btn-browser") {
		open(id)
		alice.axe("the panel of " + id)
		open(id)
	}
	for _, id := range strings.Fields("btn-env btn-recordings btn-approvals btn-help") {
		open(id)
		alice.until(`document.querySelector('dialog[open]')`)
		alice.axe("the dialog of " + id)
		alice.eval(`document.querySelector('dialog[open]').close()`)
	}
	alice.eval(fmt.Sprintf(`location.href = %q`, relay.link("bob")))
	alice.until(`document.querySelector('#person[open]')`)
	alice.axe("the question whose link it is")
	alice.check()
}

// A relay that is reached by an IPv6 address, too, has a page without complaints:
// a policy can't name such an address.
func TestFound20NoComplaintsOnLoad(t *testing.T) {
	t.Parallel()
	relay := newFakeRelay(t, "http://[::1]:8080", "http://localhost:8080")
	alice := newTab(t, newBrowser(t))
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	if origins := eval[string](alice, `document.querySelector('meta[name=fairlead-origins]').content`); strings.Contains(origins, "[") || !strings.Contains(origins, "localhost") {
		t.Errorf("the page is told to try %s", origins)
	}
	alice.check()
}

// F6 leads from the terminal to control, on to the tools, and back: Tab would end
// in the terminal between them.
func TestFound20ToolsByKeyboard(t *testing.T) {
	t.Parallel()
	relay := newFakeRelay(t)
	alice := newTab(t, newBrowser(t))
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.focusTerminal()
	alice.typing(kb.F6)
	alice.until(`document.activeElement.closest('.bar')`)
	alice.typing(kb.F6)
	alice.until(`document.activeElement.closest('.foot')`)
	reached := map[string]bool{}
	for range 40 {
		id := eval[string](alice, `document.activeElement.dataset.testid ?? ""`)
		reached[id] = true
		if id == "btn-help" {
			break
		}
		alice.typing("\t")
	}
	for _, id := range strings.Fields("btn-find btn-copy btn-paste btn-smaller btn-bigger btn-files btn-help") {
		if !reached[id] {
			t.Errorf("Tab doesn't reach %s: %v", id, reached)
		}
	}
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('.xterm-helper-textarea')`)
	alice.check()
}

// After a change of the environment it is said from when on it counts: the first
// command at a prompt that is there already misses it.
func TestFound20EnvironmentSaysWhen(t *testing.T) {
	t.Parallel()
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapEnv)
	alice := newTab(t, newBrowser(t))
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.eval(`document.querySelector('[data-testid=btn-env]').click()`)
	set := func(name, says string) {
		t.Helper()
		alice.until(`!document.querySelector('[data-testid=env-save]').disabled`)
		alice.run(focus("env-name"))
		alice.typing(name)
		alice.run(focus("env-value"))
		alice.typing("value-of-" + name + "\r")
		alice.untilText("env-list", name)
		alice.untilText("env-when", says)
	}
	set("LATER", "those that run don’t")
	alice.click("env-apply-now")
	set("NOW", "its first command misses it")
	alice.check()
}
