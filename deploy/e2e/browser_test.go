package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/program/chromium"
	"github.com/fairlead/fairlead/protocol"
)

// shots, when set, is the directory that screenshots are written to, for eyes.
var shots = os.Getenv("FAIRLEAD_SHOTS")

// A window is one person's browser: a Chromium process of its own.
type window struct {
	t    *testing.T
	name string
	ctx  context.Context
}

type step = chromedp.Action[chromedp.Void]

// findChromium returns where Chromium is. Without, the test is skipped, or fails
// where all tests must run.
func findChromium(t *testing.T) string {
	t.Helper()
	path, err := chromium.Find()
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip("Chromium is missing: apt-get install chromium")
	return ""
}

// openWindow starts a browser with a window of the given size; more are further
// options of Chromium.
func openWindow(t *testing.T, name, url string, width, height int64, more ...chromedp.ExecAllocatorOption) *window {
	t.Helper()
	return openExtended(t, name, url, "", width, height, more...)
}

// openExtended is openWindow of a browser that has loaded an extension from its
// directory; empty: none.
func openExtended(t *testing.T, name, url, extension string, width, height int64, more ...chromedp.ExecAllocatorOption) *window {
	t.Helper()
	options := append(chromium.Headless(findChromium(t), t.TempDir(), extension), chromedp.WSURLReadTimeout(patience))
	options = append(options, more...)
	ctx, stop := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	return openTab(t, name, ctx, url, width, height)
}

// openTab opens a page in a tab of the browser that ctx belongs to, its first one if
// it has none yet.
func openTab(t *testing.T, name string, ctx context.Context, url string, width, height int64) *window {
	t.Helper()
	w := &window{t, name, ctx}
	w.run(devtools(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	}))
	// Keys go to a page that has the focus, which a window gets when there is time.
	w.run(devtools(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	w.run(chromedp.Navigate(url))
	return w
}

// devtools makes a step of one protocol command.
func devtools[P, R any](cmd cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

func (w *window) run(steps ...step) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, steps...); err != nil {
		w.t.Fatalf("%s's browser: %v", w.name, err)
	}
}

func eval[T any](w *window, expression string) T {
	w.t.Helper()
	value, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		w.t.Fatalf("%s's browser: %s: %v", w.name, expression, err)
	}
	return value
}

// until waits for a JavaScript expression to become true. The page's policy
// forbids chromedp.Poll, which compiles its predicate there. A page that is just
// being left answers with an error: the next one is asked again.
func (w *window) until(what string) {
	w.t.Helper()
	deadline := time.After(patience / 2)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		shown, err := chromedp.Run(w.ctx, chromedp.Evaluate[bool]("Boolean("+what+")"))
		if shown && err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%s's browser: %s: %v", w.name, what, err)
		case <-deadline:
			w.shoot("failed")
			w.t.Fatalf("%s's browser never shows %s (%v); it shows:\n%s", w.name, what, err,
				eval[string](w, `document.body.innerText + "\n" + (window.fairlead?.screenText(true) ?? "")`))
		}
	}
}

// notice returns a JavaScript expression that is true once an element has said
// text, from now on, however soon it says something else.
func (w *window) notice(id, text string) (noticed string) {
	w.t.Helper()
	eval[any](w, fmt.Sprintf(`(() => {
		window.noticed = false;
		const look = () => { window.noticed ||= document.querySelector(%q)?.textContent.includes(%q) ?? false };
		new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
		return null;
	})()`, selector(id), text))
	return "window.noticed"
}

func selector(id string) string { return `[data-testid="` + id + `"]` }

func (w *window) untilScreen(text string) {
	w.t.Helper()
	w.until(fmt.Sprintf(`window.fairlead?.screenText(true).includes(%q)`, text))
}

func (w *window) untilText(id, text string) {
	w.t.Helper()
	w.until(fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, selector(id), text))
}

// click clicks an element once it is there. Where the page draws it anew while it is
// looked for, that wasn't a click: the next look finds the new one.
func (w *window) click(id string) {
	w.t.Helper()
	for {
		w.until(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector(id)))
		err := chromedp.Do(w.ctx, chromedp.Click(chromedp.CSS(selector(id)), chromedp.NodeVisible))
		if err == nil {
			return
		}
		if w.ctx.Err() != nil || !strings.Contains(err.Error(), "Could not find node") {
			w.t.Fatalf("%s's browser: %v", w.name, err)
		}
	}
}

// typeLine types text and Enter into the terminal, as a keyboard does.
func (w *window) typeLine(text string) {
	w.t.Helper()
	w.run(chromedp.Click(chromedp.CSS(selector("terminal")), chromedp.NodeVisible))
	w.until(fmt.Sprintf(`document.hasFocus() && document.activeElement?.closest(%q)`, selector("terminal")))
	for _, r := range text {
		w.run(devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Text: string(r), Key: string(r)}),
			devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyUp", Key: string(r)}))
	}
	w.run(devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: "keyDown", Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13,
	}), devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyUp", Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13}))
}

// shoot keeps a picture for eyes.
func (w *window) shoot(name string) {
	if shots == "" {
		return
	}
	var picture []byte
	w.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		result, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
		if err == nil {
			picture, err = decodePicture(result.Data)
		}
		return err
	}))
	if err := os.WriteFile(filepath.Join(shots, w.name+"-"+name+".png"), picture, 0o644); err != nil {
		w.t.Error(err)
	}
}

func decodePicture(data any) ([]byte, error) {
	switch data := data.(type) {
	case []byte:
		return data, nil
	case string:
		return base64.StdEncoding.DecodeString(data)
	}
	return nil, fmt.Errorf("a picture of type %T", data)
}

// Two browsers, two people, one shell: both see 42, the second asks for
// control, the first grants it, the second types.
func TestTwoBrowsersShareATerminal(t *testing.T) {
	s := own(t)
	link := func(name string) string { return s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token }
	alice := openWindow(t, "alice", link("alice"), 1440, 900)
	alice.untilText("controller", "You have control")
	bob := openWindow(t, "bob", link("bob"), 390, 844)
	bob.untilText("controller", "alice has control")
	alice.until(`!location.href.includes("token")`)
	alice.until(`document.querySelector('[data-testid=viewers]').ariaLabel.includes('bob')`)

	alice.typeLine("echo $((6*7))")
	alice.untilScreen("\n42")
	bob.untilScreen("\n42")
	alice.shoot("controls")
	bob.shoot("watches")

	alice.click("btn-record")
	bob.until(`document.querySelector('[data-testid=rec]').checkVisibility()`)

	bob.click("btn-request")
	alice.shoot("asked")
	alice.click("btn-grant-" + string(s.Ready.Users["bob"].ID))
	bob.untilText("controller", "You have control")
	alice.untilText("controller", "bob has control")
	bob.typeLine("echo from-bob-$((1+1))")
	alice.untilScreen("\nfrom-bob-2")
	bob.untilScreen("\nfrom-bob-2")
	alice.shoot("watches")
	bob.shoot("controls")

	// The relay dies; both see it, both are back without a reload.
	lost := map[*window]string{}
	for _, w := range []*window{alice, bob} {
		lost[w] = w.notice("status", "Not connected")
	}
	killed := time.Now()
	killRelay(t, s)
	for w, noticed := range lost {
		w.until(noticed)
	}
	alice.shoot("lost")
	for _, w := range []*window{alice, bob} {
		w.untilText("status", "Connected")
	}
	bob.regain(killed)
	bob.typeLine("echo again-$((40+2))")
	alice.untilScreen("again-42")
	bob.untilScreen("again-42")
	alice.shoot("back")

	// What was recorded knows nothing of the relay's death.
	alice.untilText("btn-record", "Stop recording")
	alice.click("btn-record")
	bob.until(`!document.querySelector('[data-testid=rec]').checkVisibility()`)
	alice.click("btn-recordings")
	alice.until(`document.querySelector('[data-testid^=btn-play-]')?.checkVisibility()`)
	alice.run(chromedp.Click(chromedp.CSS(`[data-testid^=btn-play-]`), chromedp.NodeVisible))
	alice.until(`document.querySelector('[data-testid=player] .ap-player')?.innerText.includes('again-42')`)
	alice.shoot("playback")
}

// A page goes to the relay that has the terminal, wherever it was loaded from,
// and what was on the screen stays there.
func TestBrowserFollowsTheTerminal(t *testing.T) {
	s := own(t, "--relays", "2")
	alice := openWindow(t, "moved", s.Ready.Relays[0].URL+"/#token="+s.Ready.Users["alice"].Token, 1440, 900)
	alice.untilText("controller", "You have control")
	alice.untilScreen("$")
	alice.typeLine("echo here-$((6*7))")
	alice.untilScreen("\nhere-42")
	for i := range 3 { // the relay that was killed is the standby next
		killed := time.Now()
		killAll(t, s)
		began := time.Now()
		alice.typeAway(killed, fmt.Sprintf("echo there-$((%d+1))", i), fmt.Sprintf("\nthere-%d", i+1))
		t.Logf("typed and echoed in %v", time.Since(began))
		alice.untilScreen("\nhere-42")
		alice.untilText("controller", "You have control")
	}
}

const (
	inControl = `document.querySelector('[data-testid=controller]').innerText.includes('You have control')`
	noControl = `document.querySelector('[data-testid=controller]').innerText.includes('Nobody has control')`
)

// regain waits until a controller who is back controls the terminal again. Who a
// busy machine has kept away for longer than control is kept takes it.
func (w *window) regain(killed time.Time) (lost bool) {
	w.t.Helper()
	w.until(inControl + "||" + noControl)
	if lost = eval[bool](w, noControl) && time.Since(killed) > protocol.ControlGrace; lost {
		w.click("btn-take")
	}
	w.untilText("controller", "You have control")
	return lost
}

// typeAway types a line while there may be no relay, and waits for what it makes.
// What was typed before control was lost is not sent.
func (w *window) typeAway(killed time.Time, line, shows string) {
	w.t.Helper()
	w.typeLine(line)
	w.until(fmt.Sprintf(`window.fairlead?.screenText(true).includes(%q) || %s`, shows, noControl))
	if w.regain(killed) {
		w.typeLine(line)
	}
	w.untilScreen(shows)
}

// killAll kills the relays one after the other, and waits for the other one to
// be ready in between.
func killAll(t *testing.T, s *Stack) {
	t.Helper()
	for i, relay := range slices.Clone(s.Ready.Relays) { // Reload writes into the old ones
		began := time.Now()
		must(t, syscall.Kill(relay.PID, syscall.SIGKILL))
		awaitRelay(within(t), t, s, i, relay.PID) // the killed one may still answer
		awaitReady(t, relay.AdminURL)
		t.Logf("ready again after %v", time.Since(began))
	}
}

// awaitReady waits until a relay that was killed is ready again.
func awaitReady(t *testing.T, adminURL string) {
	t.Helper()
	ctx := within(t)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if status, _, err := Call(ctx, "GET", adminURL+"/readyz", "", nil); err == nil && status == 200 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%s is not ready again", adminURL)
		}
	}
}
