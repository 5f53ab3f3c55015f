package console_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"
)

// press presses a key together with modifiers.
func (b *tab) press(modifiers int64, key, code string, windows int64) {
	b.Helper()
	event := input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeRawKeyDown, Key: key, Code: code, WindowsVirtualKeyCode: windows, Modifiers: modifiers,
	}
	up := event
	up.Type = input.DispatchKeyEventTypeKeyUp
	b.run(command(input.DispatchKeyEvent, event), command(input.DispatchKeyEvent, up))
}

// Modifiers of a key event.
const (
	ctrl  = 2
	shift = 8
)

// Text is found in what has scrolled away too, without a mouse.
func testSearch(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	pty := relay.pty("pty_1")
	relay.output(pty, "needle one\r\n"+strings.Repeat("hay\r\n", 100)+"Needle two\r\n$ ")
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.focusTerminal()
	alice.press(ctrl|shift, "F", "KeyF", 70)
	alice.until(`document.activeElement.matches('[data-testid=search-input]')`)
	alice.typing("needle")
	alice.untilText("search-count", "of 2")
	if eval[bool](alice, `document.querySelector('[data-testid=search-count]').innerText === '2 of 2'`) {
		alice.typing("\r")
	}
	alice.untilText("search-count", "1 of 2")
	alice.until(`document.querySelector('.xterm-rows').innerText.includes('needle one')`)
	alice.click("search-case")
	alice.untilText("search-count", "of 1")
	alice.click("search-regex")
	alice.run(focus("search-input"))
	alice.typing("(")
	alice.untilText("search-count", "Not a regular expression")
	alice.typing(kb.Escape)
	alice.until(`document.activeElement.matches('.xterm-helper-textarea') && document.querySelector('[data-testid=search]').hidden`)

	alice.press(ctrl, "+", "Equal", 187)
	alice.untilText("btn-normal", "15")
	alice.press(ctrl, "0", "Digit0", 48)
	alice.untilText("btn-normal", "14")
	alice.check()
	relay.check(t)
}

// Everybody sees that a terminal is recorded; recordings are listed and played,
// under the page's policy.
func testRecordings(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	bob.until(`document.querySelector('[data-testid=btn-record]').hidden`)
	alice.click("btn-record")
	for _, tab := range []*tab{alice, bob} {
		tab.until(`!document.querySelector('[data-testid=rec]').hidden`)
	}
	alice.untilText("btn-record", "Stop recording")
	alice.click("btn-record")
	bob.until(`document.querySelector('[data-testid=rec]').hidden`)

	bob.click("btn-recordings")
	bob.untilText("recording-rec_1", "Play")
	bob.click("btn-play-rec_1")
	bob.until(`document.querySelector('[data-testid=player] .ap-player .ap-term')`)
	bob.until(`document.querySelector('[data-testid=player] .ap-player')?.innerText.includes('recorded')`)
	bob.until(`document.querySelectorAll('[data-testid=player] symbol path').length > 0`)
	bob.typing(kb.Escape)
	bob.until(`!document.querySelector('[data-testid=recordings]').open && document.querySelector('[data-testid=player]').childElementCount === 0`)
	alice.check()
	bob.check()
	relay.check(t)
}

// On a phone there are keys to touch, and a menu; a paste of lines is asked
// about.
func testPhone(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser, phone()...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	key := func(name string) {
		t.Helper()
		alice.eval(fmt.Sprintf(`document.querySelector('[data-testid=keybar] [aria-label=%q]').click()`, name))
	}
	relay.output(pty, "\x1b[?1hkeypad")
	alice.untilScreen("keypad") // the page knows of the mode
	alice.focusTerminal()
	for _, name := range []string{"Pipe", "Up", "PgDn: page down", "Ctrl, for the next key"} {
		key(name)
	}
	alice.typing("c")
	relay.until(t, "the keys arrive", func() bool { return string(pty.input) == "|\x1bOA\x1b[6~\x03" })
	alice.click("btn-more")
	alice.until(`document.querySelector('#tools').matches(':popover-open')`)
	alice.click("btn-find")
	alice.until(`document.activeElement.matches('[data-testid=search-input]') && !document.querySelector('#tools').matches(':popover-open')`)
	alice.click("search-close")
	alice.eval(`(() => {
		const data = new DataTransfer();
		data.setData('text/plain', 'first\nsecond');
		document.querySelector('.xterm-helper-textarea').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
	})()`)
	alice.until(`document.querySelector('#ask').open && document.querySelector('#ask').innerText.includes('Paste 2 lines?')`)
	alice.eval(`document.querySelector('#ask-yes').click()`)
	relay.until(t, "the paste arrives", func() bool { return strings.HasSuffix(string(pty.input), "first\rsecond") })
	if wide := eval[bool](alice, `document.documentElement.scrollWidth > innerWidth`); wide {
		t.Error("the page is wider than the phone")
	}
	alice.check()
	relay.check(t)
}

// phone makes a window a phone's.
func phone() []step {
	return []step{
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 2, Mobile: true}),
		command(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true, MaxTouchPoints: 5}),
	}
}

// WebGL draws under the page's policy, and the DOM goes on where it fails.
func testWebGL(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser, renderer("webgl"))
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	relay.output(relay.pty("pty_1"), "drawn\r\n")
	alice.untilScreen("drawn")
	if eval[bool](alice, `window.fairlead.webgl()`) {
		t.Log("drawn by WebGL")
	} else {
		t.Log("this Chromium has no WebGL; the DOM is used")
	}
	alice.eval(`document.querySelectorAll('.xterm canvas').forEach((c) => c.getContext('webgl2')?.getExtension('WEBGL_lose_context')?.loseContext())`)
	alice.until(`!window.fairlead.webgl()`)
	alice.until(`document.querySelector('.xterm-rows')?.innerText.includes('drawn')`)
	alice.until(`getComputedStyle(document.querySelector('.xterm-rows > div')).overflowY === 'visible'`) // or underscores are cut off
	alice.check()
	relay.check(t)
}
