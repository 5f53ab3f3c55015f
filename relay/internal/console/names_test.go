package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/fairlead/fairlead/protocol"
)

// phoneOf makes a window that of a phone so many pixels wide.
func phoneOf(width int64) step {
	return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 700, DeviceScaleFactor: 2, Mobile: true})
}

// picture takes a picture into the folder that FAIRLEAD_PICTURES names, if it
// does.
func (b *tab) picture(name string) {
	b.Helper()
	if dir := os.Getenv("FAIRLEAD_PICTURES"); dir != "" {
		b.shot(filepath.Join(dir, name+".png"))
	}
}

// inSight checks that an element shows all of its text behind the name that it
// begins with, and some of that.
func (b *tab) inSight(id, words string) {
	b.Helper()
	b.untilText(id, words)
	problem := eval[string](b, fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		const range = document.createRange();
		range.selectNodeContents(element.lastChild);
		const said = range.getBoundingClientRect();
		const name = element.querySelector('.name');
		if (range.toString() !== %q) return 'it says ' + range.toString();
		if (name.scrollWidth <= name.clientWidth) return 'the name is not shortened';
		if (name.clientWidth < 40) return 'the name has ' + name.clientWidth + ' px';
		for (let box = element; box !== null; box = box.parentElement) {
			const { left, right } = box.getBoundingClientRect();
			if (getComputedStyle(box).textOverflow === 'ellipsis' && box.scrollWidth > box.clientWidth) return box.className + ' ends in an ellipsis';
			if (getComputedStyle(box).overflowX !== 'visible' && (said.left < left || said.right > right + 0.5)) return 'it ends at ' + said.right + ' in ' + box.id + box.className + ', which ends at ' + right;
		}
		const there = document.elementFromPoint((said.left + said.right) / 2, (said.top + said.bottom) / 2);
		return there !== null && element.contains(there) ? '' : 'something is before it';
	})()`, testid(id), " "+words))
	if problem != "" {
		b.Errorf("%s, %q: %s", id, words, problem)
	}
}

// However long a name is, one sees what is said about it; and where access has
// ended, all of the screen.
func testLongNames(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser, phone()...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	name := strings.Repeat("refactoring-", 6)[:64]
	change := func(f func()) {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		f()
	}
	for _, width := range []int64{390, 320} {
		alice.run(phoneOf(width))
		change(func() { pty.work(name) })
		alice.inSight("agent-text", "is working")
		alice.inSight("controller", "has control")
		alice.focusTerminal()
		alice.typing("l")
		alice.untilText("hint", "pause it to type")
		if wide := eval[bool](alice, `document.documentElement.scrollWidth > innerWidth || document.querySelector('#hint').scrollWidth > innerWidth`); wide {
			t.Errorf("the page is wider than %d px", width)
		}
		alice.picture(fmt.Sprint("long-name-working-", width))
		change(func() { pty.rest(protocol.AgentPaused) })
		alice.inSight("agent-text", "is paused")
		alice.picture(fmt.Sprint("long-name-paused-", width))
	}

	alice.run(phoneOf(390))
	alice.until(`innerWidth === 390`)
	relay.output(pty, "\x1b[2J\x1b[Hfirst\r\n")
	alice.untilScreen("first")
	change(func() {
		clear(relay.users)
		for s := range pty.sockets {
			s.drop(nil)
		}
	})
	alice.untilText("banner", "not valid any more")
	alice.until(`document.querySelector('.host:not([hidden]) .xterm-screen').getBoundingClientRect().top >= document.querySelector('[data-testid=banner]').getBoundingClientRect().bottom`)
	alice.until(`document.querySelector('.host:not([hidden]) .xterm-screen').getBoundingClientRect().bottom <= document.querySelector('.stage').getBoundingClientRect().bottom`)
	alice.picture("not-valid-390")
	alice.run(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 720, DeviceScaleFactor: 1}))
	alice.until(`innerWidth === 1280`)
	alice.until(`document.querySelector('.host:not([hidden]) .xterm-screen').getBoundingClientRect().top >= document.querySelector('[data-testid=banner]').getBoundingClientRect().bottom`)
	alice.picture("not-valid-1280")
	alice.check()
	relay.check(t)
}
