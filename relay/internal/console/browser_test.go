package console_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/deploy/program/chromium"
	"github.com/fairlead/fairlead/relay/internal/console"
)

// missing skips what a machine without a browser can't test; where everything
// must run it fails instead.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// newBrowser returns the context of the Chromium that all tests share: each opens
// windows of its own, which share nothing.
func newBrowser(t testing.TB) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser")
	}
	if !console.Built() {
		missing(t, "the console is not built: go run ./relay/internal/console/build")
	}
	path, err := chromium.Find()
	if err != nil {
		missing(t, "Chromium is missing: apt-get install chromium")
	}
	shared.Do(func() { shared.ctx, shared.err = startBrowser(path) })
	if shared.err != nil {
		t.Fatalf("start %s: %v", path, shared.err)
	}
	return shared.ctx
}

// shared is the Chromium of all tests.
var shared struct {
	sync.Once
	ctx  context.Context
	err  error
	stop []func()
}

// TestMain ends the Chromium that was started.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range slices.Backward(shared.stop) {
		stop()
	}
	os.Exit(code)
}

// startBrowser starts one. Most of what windows cost are processes for pages, so
// none is started in advance, and windows that share a context share one.
func startBrowser(path string) (context.Context, error) {
	profile, err := os.MkdirTemp("", "console")
	if err != nil {
		return nil, err
	}
	shared.stop = append(shared.stop, func() { os.RemoveAll(profile) })
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Flag("headless", "new"),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-features", "Translate,BlinkGenPropertyTrees,SpareRendererForSitePerProcess"),
		chromedp.Flag("renderer-process-limit", "1"),
	)
	ctx, stop := context.WithTimeout(context.Background(), 12*time.Minute)
	shared.stop = append(shared.stop, stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	shared.stop = append(shared.stop, stop)
	ctx, stop = chromedp.NewContext(ctx)
	shared.stop = append(shared.stop, stop)
	return ctx, chromedp.Do(ctx)
}

// A tab is one person's browser window.
type tab struct {
	testing.TB
	ctx context.Context

	mu     sync.Mutex
	faults []string // what the browser complained about
}

type step = chromedp.Action[chromedp.Void]

// command makes a step of one protocol command.
func command[P, R any](cmd cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

// newTab opens a window that shares nothing with the others.
func newTab(t testing.TB, browser context.Context, prepare ...step) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	return newWindow(t, ctx, prepare...)
}

// newWindow opens a window of the browser context that ctx belongs to.
func newWindow(t testing.TB, ctx context.Context, prepare ...step) *tab {
	t.Helper()
	if chromedp.FromContext(ctx).Target != nil {
		var stop context.CancelFunc
		ctx, stop = chromedp.NewContext(ctx)
		t.Cleanup(stop)
	}
	b := &tab{TB: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.run(command(cdplog.Enable, cdp.Empty{}), command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.violatedDirective, e.blockedURI, e.sample))`,
	}), renderer("dom"),
		// Keys go to a page that has the focus, which a window gets when there is time.
		command(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	b.run(prepare...)
	return b
}

// renderer has a page draw by "dom" or "webgl": to find out which is faster
// costs more here than all the drawing.
func renderer(name string) step {
	return command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `try { localStorage.setItem('fairlead.renderer', '` + name + `') } catch {}`,
	})
}

// listen keeps what the browser complains about. A refused reconnect is logged
// too, but not by the sources "security" and "javascript".
func (b *tab) listen(event any) {
	var fault string
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = event.ExceptionDetails.Text
		if event.ExceptionDetails.Exception != nil {
			fault += " " + event.ExceptionDetails.Exception.Description
		}
	case *cdplog.EventEntryAdded:
		if event.Entry.Source == cdplog.EntrySourceSecurity || event.Entry.Source == cdplog.EntrySourceJavascript {
			fault = event.Entry.Text
		}
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError {
			for _, arg := range event.Args {
				fault += " " + string(arg.Value) + arg.Description
			}
		}
	}
	if fault != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, fault)
	}
}

func (b *tab) run(steps ...step) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

func eval[T any](b *tab, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

// eval evaluates an expression for what it does.
func (b *tab) eval(expression string) {
	b.Helper()
	eval[any](b, "("+expression+", null)")
}

// focus focuses an element as Tab would.
func focus(id string) step { return chromedp.Focus(chromedp.CSS(testid(id))) }

func testid(id string) string { return `[data-testid="` + id + `"]` }

func (b *tab) open(url string) {
	b.Helper()
	b.run(chromedp.Navigate(url))
}

// until waits for a JavaScript expression to become true. The page's policy
// forbids chromedp.Poll, which compiles its predicate there.
func (b *tab) until(what string) {
	b.Helper()
	deadline := time.After(untilTime)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	holds := func() bool {
		value, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+what+")"))
		if err != nil && !strings.Contains(err.Error(), "navigated") { // a page that loads again has no answer yet
			b.Fatalf("%s: %v", what, err)
		}
		return value
	}
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			state := eval[string](b, `document.body.innerText + "\n--- screen ---\n" + (window.fairlead?.screenText() ?? "")`)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.Fatalf("waiting for %s; the browser says %q; the page shows:\n%s", what, b.faults, state)
		}
	}
}

func (b *tab) untilText(id, text string) {
	b.Helper()
	b.until(fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, testid(id), text))
}

func (b *tab) untilScreen(text string) {
	b.Helper()
	b.until(fmt.Sprintf(`window.fairlead?.screenText(true).includes(%q)`, text))
}

func (b *tab) click(id string) {
	b.Helper()
	b.run(chromedp.Click(chromedp.CSS(testid(id)), chromedp.NodeVisible))
}

// typing goes to whatever has the focus, as a keyboard's does. (KeyEvent sends
// a character even when the page has handled its key, so that xterm.js would
// see it twice.)
func (b *tab) typing(text string) {
	b.Helper()
	for _, r := range text {
		key := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(r), Text: string(r)}
		if known, ok := kb.Keys[r]; ok {
			key.Key, key.Code, key.Text, key.WindowsVirtualKeyCode = known.Key, known.Code, known.Text, known.Windows
		}
		up := key
		up.Type, up.Text = input.DispatchKeyEventTypeKeyUp, ""
		b.run(command(input.DispatchKeyEvent, key), command(input.DispatchKeyEvent, up))
	}
}

func (b *tab) focusTerminal() {
	b.Helper()
	b.run(chromedp.Focus(chromedp.CSS(`.host:not([hidden]) .xterm-helper-textarea`)))
}

func (b *tab) check() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.Errorf("the browser complains: %s", fault)
	}
}

// atOnce is how many of the browser's tests run at the same time: most of what
// they do is to wait.
const atOnce = 4

// untilTime is how long anything may take on a machine that has much else to do.
const untilTime = 40 * time.Second

// TestBrowser shows the console to a real browser.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	turns := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for name, test := range map[string]func(*testing.T, context.Context){
		"two people": testTwoPeople, "long session": testLongSession, "queries": testQueries,
		"paste": testPaste, "keyboard": testKeyboard, "flood": testFlood,
		"exactly once": testExactlyOnce, "another relay": testAnotherRelay, "skipped": testSkipped,
		"search": testSearch, "recordings": testRecordings, "share": testShare, "phone": testPhone, "webgl": testWebGL,
		"agent": testAgent, "approvals": testApprovals, "tool approvals": testToolApprovals, "approval outage": testApprovalOutage,
		"egress": testEgress, "environment": testEnvironment, "held": testHeld, "long names": testLongNames, "sign in": testSignIn,
		"file tree": testFileTree, "file transfers": testFileTransfers, "file names": testFileNames, "file rights": testFileRights, "file outages": testFileOutages,
		"refused for good": testRefusedForGood, "unknown outcome": testUnknownOutcome, "turns": testTurns, "integrations": testIntegrations, "live browser": testLiveBrowser, "chat": testChat,
		"chat questions": testChatQuestions, "chat messages": testChatMessages, "chat elsewhere": testChatElsewhere, "plugin pages": testPluginPages,
		"side panel": testSidePanel, "waiting terminal": testWaitingTerminal, "tabs of one’s own": testMyTabs, "no extension": testNoExtension,
		"signed-in sites": testSignedIn, "paired from the page": testPairing, "what is taken": testSyncPolicy,
	} {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(name, func(t *testing.T) { test(t, browser) })
		})
	}
}

// Two people share a terminal, hand control over, and lose nothing when the
// connection breaks.
func testTwoPeople(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, bob := newTab(t, browser), newTab(t, browser)

	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.untilText("status", "Connected")
	if address := eval[string](alice, `location.href`); address != relay.URL+"/" {
		t.Errorf("the address bar shows %s", address)
	}
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	alice.until(`document.querySelector('[data-testid=viewers]').ariaLabel.includes('bob')`)

	alice.typing("echo $((6*7))\r")
	alice.untilScreen("\n42\n")
	bob.untilScreen("\n42\n")

	// Bob's keys go nowhere, and he is told.
	bob.focusTerminal()
	bob.typing("x")
	bob.untilText("hint", "alice has control")
	bob.click("btn-request")
	bob.untilText("btn-cancel", "Cancel request")
	alice.untilText("requests", "bob asks for control")
	alice.click("btn-grant-usr_bob")
	bob.untilText("controller", "You have control")
	alice.untilText("controller", "bob has control")
	bob.focusTerminal()
	bob.typing("echo $((7*8))\r")
	alice.untilScreen("\n56\n")
	bob.untilScreen("\n56\n")

	// The connection breaks; what is said meanwhile arrives, and nothing twice.
	pty := relay.pty("pty_1")
	relay.cut(pty, true)
	alice.untilText("banner", "Connection lost")
	relay.output(pty, "meanwhile\r\n")
	bob.untilText("status", "Not connected")
	relay.reopen()
	alice.untilText("banner", "Connected again")
	for _, tab := range []*tab{alice, bob} {
		tab.untilScreen("meanwhile")
		tab.until(`window.fairlead.screenText(true).split('56').length === 2`)
		tab.untilText("status", "Connected")
	}
	bob.click("btn-release")
	alice.untilText("controller", "Nobody has control")
	alice.click("btn-take")
	alice.untilText("controller", "You have control")
	bob.untilText("controller", "alice has control")

	relay.mu.Lock()
	resumed := slices.ContainsFunc(relay.sinces, func(since string) bool { return since != "" })
	relay.mu.Unlock()
	if !resumed {
		t.Errorf("no reconnect named its position: %q", relay.sinces)
	}
	alice.check()
	bob.check()
	relay.check(t)
}

// A grant is renewed on the open socket; a sandbox that goes away and comes
// back is told.
func testLongSession(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.lifetime = 3 * time.Second // at least two, since expires_at has whole seconds
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	alice.until(`!document.querySelector('.foot').innerText.includes('80 × 24')`) // the window's size is agreed
	relay.wait(pty)
	alice.untilText("banner", "The sandbox is not connected")
	alice.typing("kept")
	alice.untilText("banner", "4 characters you typed will be sent")
	relay.back(pty)
	alice.untilText("banner", "The sandbox is back")
	alice.until(`document.querySelector('[data-testid=banner]').hidden`)
	alice.untilScreen("$ kept")
	relay.until(t, "the socket has another grant than its ticket", func() bool {
		return slices.ContainsFunc(relay.reauths, func(grant string) bool { return !slices.Contains(relay.admits, grant) })
	})
	relay.mu.Lock()
	if len(relay.sinces) != 1 {
		t.Errorf("%d sockets", len(relay.sinces))
	}
	relay.mu.Unlock()
	alice.check()
	relay.check(t)
}

// What programs ask is answered by the sandbox, never by a viewer.
func testQueries(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	pty := relay.pty("pty_1")
	const queries = "\x1b[c\x1b[>c\x1b[=c\x1b[5n\x1b[?15n\x1b[>q\x1b[?1$p\x1b[4$p\x1b[18t\x1b[14t\x1b[x\x1b[?u" +
		"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1b]4;1;?\x07\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]12;?\x07\x1b]52;c;?\x07\x05"
	relay.output(pty, "history\x1b[6n\x1b[?6n\x1b[?1004h"+queries+"\r\n")
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	bob.open(relay.link("bob"))
	again := newWindow(t, alice.ctx) // alice's second window of the same browser
	again.open(relay.link("alice"))
	again.untilScreen("history")
	alice.untilScreen("history")
	bob.untilScreen("history")
	relay.output(pty, "\x1b[?1004l\x1b[2J\x1b[3;5Hlive"+queries+"\x1b[6n\x1b[?6n")
	alice.untilScreen("live")
	bob.untilScreen("live")
	again.untilScreen("live")
	alice.focusTerminal()
	alice.typing("!")
	alice.untilScreen("!")
	relay.mu.Lock()
	got := string(pty.input)
	relay.mu.Unlock()
	if want := "!"; got != want {
		t.Errorf("the program reads %q, want %q", got, want)
	}
	alice.check()
	bob.check()
	relay.check(t)
}

// A paste of 1 MiB arrives whole, in pieces.
func testPaste(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	relay.output(pty, "\x1b[?2004hbracketed")
	alice.untilScreen("bracketed")
	sent := eval[string](alice, `(() => {
		const text = ('é'.repeat(511) + '\n\x1b').repeat(1024);
		const data = new DataTransfer();
		data.setData('text/plain', text);
		document.querySelector('.xterm-helper-textarea').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
		return text;
	})()`)
	want := "\x1b[200~" + strings.NewReplacer("\n", "\r", "\x1b", "\u241b").Replace(sent) + "\x1b[201~"
	relay.until(t, fmt.Sprint(len(want), " bytes have arrived"), func() bool { return string(pty.input) == want })
	relay.mu.Lock()
	if pty.largest > 16<<10 {
		t.Errorf("a piece has %d bytes", pty.largest)
	}
	relay.mu.Unlock()
	alice.check()
	relay.check(t)
}

// Everything works without a mouse, and a terminal's end is told.
func testKeyboard(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, carol := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	focused := func(id string) string {
		return fmt.Sprintf(`document.activeElement.matches(%q)`, testid(id))
	}
	alice.typing(kb.F6)
	alice.until(focused("btn-release"))
	alice.typing("\r")
	alice.until(focused("btn-take"))
	alice.typing("\r")
	alice.untilText("controller", "You have control")
	alice.until(`document.activeElement.matches('.xterm-helper-textarea')`)

	carol.open(relay.link("carol"))
	carol.untilText("controller", "alice has control")
	carol.until(`document.querySelector('[data-testid=btn-request]').hidden && document.querySelector('[data-testid=btn-new]').hidden`)

	alice.click("btn-new")
	alice.until(`document.querySelectorAll('[role=tab]').length === 2 && document.querySelector('.host[data-pty-id=pty_1]').hidden`)
	alice.untilText("controller", "You have control")
	alice.typing("echo $((3*3))\r")
	alice.untilScreen("\n9\n")
	alice.run(chromedp.Focus(chromedp.CSS(`[role=tab][aria-selected=true]`)))
	alice.typing(kb.ArrowLeft)
	alice.until(focused("tab-pty_1"))
	alice.until(`!window.fairlead.screenText().includes('9')`)

	relay.exit(relay.pty("pty_1"), 3, "")
	alice.untilText("banner", "exit code 3")
	carol.untilText("banner", "exit code 3")
	alice.check()
	carol.check()
	relay.check(t)
}
