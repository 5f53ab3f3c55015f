package extension_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/deploy/program/chromium"
)

// pictures, when set, is the directory that screenshots are written to, for eyes.
var pictures = os.Getenv("FAIRLEAD_PICTURES")

// patience ends a test that hangs, not one on a busy machine.
func patience(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(stop)
	return ctx
}

// missing skips what a machine can't test; where everything must run it fails.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// start starts a Chromium that has loaded the extension, built for the relay. The
// permission that Chrome would ask a person for is given beforehand where granted.
func start(t testing.TB, relay *fakeRelay, granted bool) context.Context {
	t.Helper()
	e, err := extension.Make(extension.Options{Origins: []string{relay.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if granted {
		e.Files["manifest.json"] = grant(t, e.Files["manifest.json"])
	}
	browser, _ := launch(t, e, t.TempDir())
	return browser
}

// launch starts a Chromium that has loaded an extension, and others from their
// directories, with a profile. It ends with the test, or by what it returns.
func launch(t testing.TB, e *extension.Extension, profile string, others ...string) (context.Context, context.CancelFunc) {
	t.Helper()
	path, err := chromium.Find()
	if err != nil {
		missing(t, "Chromium is missing: apt-get install chromium")
	}
	dir := filepath.Join(t.TempDir(), "extension")
	if err := e.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	ctx, stopAll := chromedp.NewExecAllocator(patience(t), append(chromium.Headless(path, profile, strings.Join(append([]string{dir}, others...), ",")), chromedp.WSURLReadTimeout(time.Minute))...)
	t.Cleanup(stopAll)
	ctx, stop := chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, stop
}

// grant makes optional permissions ones that are given already: a headless browser
// has nobody who could be asked.
func grant(t testing.TB, manifest []byte) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	m["permissions"] = append(m["permissions"].([]any), m["optional_permissions"].([]any)...)
	delete(m, "optional_permissions")
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type step = chromedp.Action[chromedp.Void]

func command[P, R any](cmd cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

// A tab is one of the browser.
type tab struct {
	testing.TB
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// newTab opens one of a phone's or a desk's size. No width: as the browser makes it.
func newTab(t testing.TB, browser context.Context, width, height int64, url string) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	t.Cleanup(stop)
	b := &tab{TB: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.run(command(cdplog.Enable, cdp.Empty{}),
		command(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500}),
		chromedp.Navigate(url))
	return b
}

// listen keeps what the browser complains about; a request that fails is logged
// too, and is the test's own doing.
func (b *tab) listen(event any) {
	var fault string
	switch event := event.(type) {
	case *cdplog.EventEntryAdded:
		if event.Entry.Source == cdplog.EntrySourceSecurity || event.Entry.Source == cdplog.EntrySourceJavascript {
			fault = event.Entry.Text
		}
	case *runtime.EventExceptionThrown:
		fault = event.ExceptionDetails.Text
		if e := event.ExceptionDetails.Exception; e != nil {
			fault += " " + e.Description
		}
	}
	if fault == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fault)
}

func (b *tab) check() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.Errorf("the browser complains: %s", fault)
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

// until waits for a JavaScript expression to be true.
func (b *tab) until(what string) {
	b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(40 * time.Second) // sooner than patience, so that there is time to say what it shows
	for {
		shown, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+what+")"))
		if shown && err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.shoot("failed")
			b.Fatalf("never %s (%v); it shows:\n%s\n%v", what, err, eval[string](b, `document.body.innerText + '\n' + (window.fairlead?.screenText() ?? '')`), b.faults)
		}
	}
}

// reload loads the page anew, and waits until the old one is gone: what it still
// shows, and does, is not the new one's.
func (b *tab) reload() {
	b.Helper()
	eval[any](b, `(window.old = true, location.reload(), null)`)
	b.until(`!window.old`)
}

func selector(id string) string { return `[data-testid="` + id + `"]` }

func (b *tab) untilText(id, text string) {
	b.Helper()
	b.until(fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, selector(id), text))
}

func (b *tab) untilHidden(id string) {
	b.Helper()
	b.until(fmt.Sprintf(`!document.querySelector(%q)?.checkVisibility()`, selector(id)))
}

func (b *tab) untilScreen(text string) {
	b.Helper()
	b.until(fmt.Sprintf(`window.fairlead.screenText().includes(%q)`, text))
}

// click clicks an element once it is there. Where the page draws it anew while it is
// looked for, that wasn't a click: the next look finds the new one.
func (b *tab) click(id string) {
	b.Helper()
	for {
		b.until(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector(id)))
		err := chromedp.Do(b.ctx, chromedp.Click(chromedp.CSS(selector(id)), chromedp.NodeVisible))
		if err == nil {
			return
		}
		if b.ctx.Err() != nil || !strings.Contains(err.Error(), "Could not find node") {
			b.Fatal(err)
		}
	}
}

// types presses keys, wherever the focus is.
func (b *tab) types(text string) {
	b.Helper()
	for _, r := range text {
		key := input.DispatchKeyEventParams{Type: "keyDown", Text: string(r), Key: string(r)}
		if r == '\r' {
			key.Key, key.Code, key.WindowsVirtualKeyCode = "Enter", "Enter", 13
		}
		up := key
		up.Type, up.Text = "keyUp", ""
		b.run(command(input.DispatchKeyEvent, key), command(input.DispatchKeyEvent, up))
	}
}

// press presses a key that types nothing but Enter.
func (b *tab) press(key string) {
	b.Helper()
	codes := map[string]int64{"Tab": 9, "Enter": 13, "F6": 117}
	down := input.DispatchKeyEventParams{Type: "keyDown", Key: key, Code: key, WindowsVirtualKeyCode: codes[key]}
	up := down
	up.Type = "keyUp"
	if key == "Enter" {
		down.Text = "\r"
	}
	b.run(command(input.DispatchKeyEvent, down), command(input.DispatchKeyEvent, up))
}

// offline takes the page's network away, or gives it back.
func (b *tab) offline(off bool) {
	b.Helper()
	b.run(command(network.Enable, network.EnableParams{}), command(network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: off, DownloadThroughput: -1, UploadThroughput: -1}))
}

// axe looks for what keeps people out who use the page without eyes, mouse or
// colours.
func (b *tab) axe(what string) {
	b.Helper()
	script, err := os.ReadFile("../../relay/internal/console/web/node_modules/axe-core/axe.min.js")
	if err != nil {
		missing(b.TB, "axe-core is missing: go run ./deploy/extension/build")
	}
	if !eval[bool](b, `Boolean(window.axe)`) {
		eval[any](b, string(script)+"; null")
	}
	eval[any](b, `(window.findings = null, axe.run(document, {resultTypes: ['violations']}).then(({violations}) => {
		window.findings = violations.map(({id, help, nodes}) => id + ': ' + help + ' ' + nodes.map(({target, failureSummary}) => target.join(' ') + ' ' + failureSummary).join('; '));
	}, (error) => window.findings = [String(error)]), null)`)
	b.until(`window.findings !== null`)
	for _, finding := range eval[[]string](b, `window.findings`) {
		b.Errorf("%s: %s", what, finding)
	}
}

// say sends a message in the chat.
func (b *tab) say(text string) {
	b.Helper()
	b.until(fmt.Sprintf(`(document.querySelector(%q).focus(), document.activeElement?.dataset.testid === 'chat-text')`, selector("chat-text")))
	b.types(text + "\r")
}

// shoot keeps a picture for eyes, in both of the page's colour schemes.
func (b *tab) shoot(name string) {
	if pictures == "" {
		return
	}
	front(b.TB, b) // what nobody sees isn't drawn
	for _, scheme := range []string{"light", "dark"} {
		b.run(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
		data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(pictures, strings.ReplaceAll(b.Name(), "/", "-")+"-"+name+"-"+scheme+".png"), data, 0o644)
		}
		if err != nil {
			b.Error(err)
		}
	}
}

func panel(e string) string { return "chrome-extension://" + e + "/panel.html" }

// front brings a tab to the front, as a click on it does.
func front(t testing.TB, b *tab) {
	t.Helper()
	b.run(command(page.BringToFront, cdp.Empty{}))
}
