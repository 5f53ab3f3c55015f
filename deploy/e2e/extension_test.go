package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/extension"
)

// openPanel starts a browser that has loaded the stack's extension, and opens the
// panel's page in a tab: a headless browser has nobody to open the panel itself.
func openPanel(t *testing.T, s *Stack, user string, width, height int64) *window {
	t.Helper()
	w := openExtended(t, "panel-"+user, s.panel(user), s.Ready.Extension.Dir, width, height)
	w.front()
	w.untilText("status", "Connected")
	return w
}

// panel is the address of the panel's page, with a user's link.
func (s *Stack) panel(user string) string {
	return "chrome-extension://" + s.Ready.Extension.ID + "/panel.html#token=" + s.Ready.Users[user].Token + "&session=" + string(s.Ready.SessionID)
}

// front brings a tab to the front, where it is drawn.
func (w *window) front() {
	w.t.Helper()
	w.run(devtools(page.BringToFront, cdp.Empty{}))
}

// rows counts, in JavaScript, the rows of the panel's chat that are of a kind and
// hold text.
func rows(kind, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('[data-testid=row-%s]')].filter((row) => row.innerText.includes(%q)).length`, kind, text)
}

// needsExtension skips a test where the extension isn't built. make test builds it,
// and CI fails without it.
func needsExtension(t *testing.T) {
	t.Helper()
	if extension.Built() {
		return
	}
	const missing = "the extension is not built: go run ./deploy/extension/build"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// TestExtension is a person's way through the side panel, in a real browser with
// the extension: the arrow goes, the first key starts claude, the chat answers, two
// tabs work at once, and a relay that is killed in between costs nothing. On the
// smaller screen there is a second relay, and the first one hands over to it.
func TestExtension(t *testing.T) {
	needsExtension(t)
	for _, size := range []struct {
		name          string
		width, height int64
		flags         []string
	}{{"wide", 1280, 800, nil}, {"phone", 390, 844, []string{"--relays", "2"}}} {
		t.Run(size.name, func(t *testing.T) {
			s := talkStack(t, "", size.flags...)
			if s.Ready.Extension.ID == "" {
				t.Fatalf("the ready file names no extension: %s", s.Output())
			}
			alice := openPanel(t, s, "alice", size.width, size.height)
			alice.name += "-" + size.name
			sidePanelArrow(t, s, alice)
			sidePanelTerminal(t, alice)
			sidePanelChat(t, s, alice)
			sidePanelConsole(t, s, alice)
			if len(s.Ready.Relays) > 1 {
				sidePanelHandedOver(t, s, alice)
				return
			}
			sidePanelRelayKilled(t, s, alice)
		})
	}
}

// sidePanelArrow: a page of the relay is told when the panel is there.
func sidePanelArrow(t *testing.T, s *Stack, alice *window) {
	t.Helper()
	ctx, stop := chromedp.NewContext(alice.ctx)
	t.Cleanup(stop)
	console := openTab(t, "console", ctx, s.Ready.Relays[0].URL+"/", 1280, 800)
	eval[any](console, `document.addEventListener('gstack-extension-ready', () => window.arrowGoes = true)`)
	alice.front()
	alice.run(chromedp.Navigate(s.panel("alice")))
	alice.run(chromedp.Reload())
	alice.untilText("status", "Connected")
	console.until(`window.arrowGoes`)
}

// sidePanelTerminal: the first key starts claude, which gets what is typed from
// then on.
func sidePanelTerminal(t *testing.T, alice *window) {
	t.Helper()
	alice.untilText("card", "Press any key")
	alice.shoot("idle")
	alice.press("x", 'X')
	alice.untilScreen("claude stand-in, session")
	alice.typeLine("hello from the panel")
	alice.untilScreen("You said: hello from the panel")
	alice.shoot("terminal")
}

// sidePanelChat: what is sent shows at once and is answered; another tab works at
// the same time, and each keeps what is its own.
func sidePanelChat(t *testing.T, s *Stack, alice *window) {
	t.Helper()
	ctx := within(t)
	alice.click("tab-chat")
	alice.shoot("chat-empty")
	alice.message("say:in the first tab")
	alice.until(rows("user", "in the first tab"))
	alice.until(rows("text", "in the first tab"))
	alice.until(`!document.querySelector('[data-testid=chat-dots]').checkVisibility()`)

	user := s.Ready.User("alice")
	grant, err := user.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	alice.message("deltas:40@20")
	alice.until(rows("text", "0:")) // what is shown at once may not have been sent yet
	must(t, call(ctx, http.StatusOK, nil, http.MethodPost, user.Base+"/sidebar-command", grant, map[string]any{"message": "say:in the second tab", "tabId": 2}))
	// Whoever writes in a tab brings it to the front, in every panel.
	alice.until(rows("text", "in the second tab"))
	alice.shoot("two-tabs")
	if eval[bool](alice, rows("user", "first tab")+" + "+rows("user", "deltas")+" > 0") {
		t.Error("what was said in the first tab shows in the second one")
	}
	alice.click("chat-tab-1")
	alice.until(rows("text", "0:"))
	alice.until(`!document.querySelector('[data-testid=chat-dots]').checkVisibility()`)
	if eval[bool](alice, rows("text", "second tab")+" > 0") {
		t.Error("what was said in the second tab shows in the first one")
	}
	alice.shoot("first-tab")
}

// sidePanelConsole: the conversation that is shown opens in the console, and goes
// back to the panel from there. Whether the browser opens the panel itself is its
// own affair: the panel's page in a tab shows what was wanted either way.
func sidePanelConsole(t *testing.T, s *Stack, alice *window) {
	t.Helper()
	before := targets(t, alice)
	alice.click("btn-more")
	alice.click("chat-console")
	var opened []target.ID
	for len(opened) == 0 { // a test that hangs ends with the browser's context
		opened = slices.DeleteFunc(targets(t, alice), func(id target.ID) bool { return slices.Contains(before, id) })
	}
	ctx, stop := chromedp.NewContext(alice.ctx, chromedp.WithTargetID(opened[0]))
	t.Cleanup(stop)
	console := &window{t, alice.name + "-console", ctx}
	console.until(`document.querySelector('[data-testid=chat-rows]')?.innerText.includes('in the first tab')`)
	console.until(`location.hash === ''`)
	console.shoot("conversation")

	alice.front()
	alice.click("chat-tab-2")
	alice.until(`document.querySelector('[data-testid=chat-tab-2]').ariaPressed === 'true'`)
	console.front()
	console.click("btn-chat-aside")
	console.until(`/in the side panel/.test(document.querySelector('[data-testid=hint]').innerText)`)
	alice.front()
	alice.until(`document.querySelector('[data-testid=chat-tab-1]').ariaPressed === 'true'`)
}

// targets are the pages that the browser shows.
func targets(t *testing.T, w *window) (ids []target.ID) {
	t.Helper()
	all, err := chromedp.Targets(w.ctx)
	must(t, err)
	for _, about := range all {
		if about.Type == "page" {
			ids = append(ids, about.TargetID)
		}
	}
	return ids
}

// sidePanelRelayKilled: the relay is killed while something is said, and everything
// is there afterwards, once.
func sidePanelRelayKilled(t *testing.T, s *Stack, alice *window) {
	t.Helper()
	alice.message("sleep:1s\nsay:after the kill")
	alice.until(rows("user", "after the kill"))
	must(t, syscall.Kill(s.Ready.Relays[0].PID, syscall.SIGKILL))
	alice.click("tab-terminal")
	alice.until(`document.querySelector('[data-testid=terminal]').dataset.state === 'lost'`)
	alice.shoot("lost")
	sidePanelIsBack(t, alice, "after the kill")
}

// sidePanelHandedOver: a relay that ends hands the terminal over to the other one,
// and so the chat goes on there.
func sidePanelHandedOver(t *testing.T, s *Stack, alice *window) {
	t.Helper()
	const word = "after the drain"
	alice.message("sleep:1s\nsay:" + word)
	alice.until(rows("user", word))
	alice.click("tab-terminal")
	alice.untilScreen("You said: hello from the panel")
	must(t, syscall.Kill(s.Ready.Relays[0].PID, syscall.SIGTERM))
	ctx := within(t)
	awaitText(ctx, t, func() string { return fmt.Sprint(metricAt(ctx, t, s, 1, "fairlead_panel_sockets"), " sockets") }, "1 sockets")
	sidePanelIsBack(t, alice, word)
}

// sidePanelIsBack: the same claude and its screen are there, and what was said in the
// chat meanwhile, once.
func sidePanelIsBack(t *testing.T, alice *window, said string) {
	t.Helper()
	alice.until(`document.querySelector('[data-testid=terminal]').dataset.state === 'live'`)
	alice.untilScreen("You said: hello from the panel")
	alice.typeLine(said)
	alice.untilScreen("You said: " + said)
	alice.shoot("terminal-after")
	alice.click("tab-chat")
	alice.until(rows("text", said) + " === 1")
	alice.until(rows("user", said) + " === 1")
	alice.message("say:and on")
	alice.until(rows("text", "and on") + " === 1")
	alice.shoot("chat-after")
}
