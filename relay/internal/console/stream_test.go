package console_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// untilRelay waits for something that the relay's own state tells.
func (f *fakeRelay) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(untilTime)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		f.mu.Lock()
		done := ok()
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waiting until %s", what)
		}
	}
}

const floodLine = "\x1b[31mred \x1b[32mgreen\x1b[0m a line of output, one of very many\r\n"

// A newcomer gets a keyframe rather than all that was printed; output that
// comes faster than a browser draws is held back by acknowledgements, and all
// of it arrives.
func testFlood(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	pty := relay.pty("pty_1")
	relay.output(pty, strings.Repeat(floodLine, 200_000)+"the end")
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilScreen("the end")
	alice.until(`!document.querySelector('[data-testid=btn-earlier]').hidden`)
	relay.output(pty, strings.Repeat(floodLine, 50_000)+"live end")
	alice.untilScreen("live end")
	alice.untilText("status", "Connected")
	acked := func() (uint64, uint64) {
		for s := range pty.sockets {
			return s.acked, uint64(len(pty.log))
		}
		return 0, 1
	}
	relay.until(t, "everything is acknowledged", func() bool { got, all := acked(); return got == all })
	relay.mu.Lock()
	if !slices.Equal(relay.sinces, []string{""}) {
		t.Errorf("the sockets began at %q, want one", relay.sinces)
	}
	relay.mu.Unlock()

	// What was before the keyframe is there to be read.
	alice.click("btn-earlier")
	alice.until(`document.querySelector('[data-testid=earlier] .xterm-rows')?.innerText.includes('one of very many')`)
	alice.untilText("earlier", "256 KiB")
	alice.click("btn-earlier-more")
	alice.untilText("earlier", "1024 KiB")
	alice.check()
	relay.check(t)
}

// Input survives lost connections: what was written and not acknowledged isn't
// written again, what got lost is, and what was typed meanwhile follows. Only
// under another controller it is dropped, and that is told.
func testExactlyOnce(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	set := func(deaf, mute bool) {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		pty.deaf, pty.mute = deaf, mute
	}
	input := func(want string) {
		t.Helper()
		relay.until(t, fmt.Sprintf("the input is %q", want), func() bool { return string(pty.input) == want })
	}

	set(false, true)
	alice.typing("one.")
	input("one.")
	set(true, false)
	alice.typing("two.")
	alice.untilScreen("$ one.")
	alice.eval(`new MutationObserver(() => (window.blank ||= !document.querySelector('.xterm-rows').textContent.includes('one.'))).observe(document.querySelector('.xterm-rows'), {childList: true, subtree: true, characterData: true})`)
	relay.cut(pty, true)
	alice.untilText("banner", "Reconnecting")
	alice.typing("three.")
	alice.untilText("banner", "14 characters you typed will be sent")
	set(false, false)
	relay.reopen()
	input("one.two.three.")
	alice.untilScreen("$ one.two.three.")
	alice.until(`document.querySelector('[data-testid=banner]').hidden`)
	if eval[bool](alice, `Boolean(window.blank)`) {
		t.Error("the screen was cleared on the way")
	}

	// Bob takes over while alice is away.
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	relay.mu.Lock()
	relay.down[relay.host()] = true
	for s := range pty.sockets {
		if s.user.id == "usr_alice" {
			s.drop(nil)
		}
	}
	relay.mu.Unlock()
	relay.mu.Lock()
	relay.down[relay.other.Listener.Addr().String()] = true
	relay.mu.Unlock()
	alice.untilText("banner", "Reconnecting")
	alice.typing("four.")
	relay.mu.Lock()
	pty.hold("usr_bob")
	pty.changed(protocol.ControlTaken{Controller: "usr_bob", Term: pty.term})
	clear(relay.down)
	relay.mu.Unlock()
	alice.untilText("controller", "bob has control")
	alice.untilText("hint", "was not sent")
	input("one.two.three.")
	alice.check()
	bob.check()
	relay.check(t)
}

// A page follows its terminal to another relay, and finds one by itself when
// its own is gone.
// What was under way when control was lost is refused for good, key by key. The
// page says how much that was, and what is typed under control taken anew arrives.
func testRefusedForGood(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	relay.mu.Lock()
	pty.deaf = true
	relay.mu.Unlock()
	alice.focusTerminal()
	alice.typing("lost")
	relay.cut(pty, true)
	relay.mu.Lock()
	pty.deaf = false
	pty.hold("")
	relay.mu.Unlock()
	relay.reopen()
	alice.untilText("hint", "4 characters you typed were not sent: control had changed meanwhile. Please type it again")
	alice.untilText("controller", "You have control") // claimed anew
	alice.typing("kept")
	alice.untilScreen("$ kept")
	relay.mu.Lock()
	defer relay.mu.Unlock()
	if got := string(pty.input); got != "kept" {
		t.Errorf("the program reads %q", got)
	}
}

func testAnotherRelay(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	first, second := relay.host(), relay.other.Listener.Addr().String()
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	relay.output(pty, "before\r\n")
	alice.untilScreen("before")
	hosts := func(want ...string) {
		t.Helper()
		relay.until(t, fmt.Sprintf("sockets are at %q", want), func() bool { return slices.Equal(relay.hosts, want) })
	}
	relay.move(pty, relay.other.URL)
	hosts(first, second)
	relay.output(pty, "moved\r\n")
	alice.untilScreen("before\nmoved")

	relay.mu.Lock()
	relay.down[second] = true
	for s := range pty.sockets {
		s.drop(nil)
	}
	relay.mu.Unlock()
	hosts(first, second, first)
	relay.output(pty, "back\r\n")
	alice.untilScreen("moved\nback")
	alice.focusTerminal()
	alice.typing("typed")
	alice.untilScreen("typed")
	alice.check()
	relay.check(t)
}

// A viewer who was too slow is told, and can read what was skipped.
func testSkipped(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	pty := relay.pty("pty_1")
	relay.skip(pty, "nobody saw this\r\n"+strings.Repeat("more of it\r\n", 2_000)+"now\r\n")
	alice.untilScreen("now")
	alice.untilText("hint", "too slow")
	alice.click("btn-hint")
	alice.untilText("earlier", "Skipped output")
	alice.until(`document.querySelector('[data-testid=earlier] .xterm-rows').innerText.includes('more of it')`)
	relay.until(t, "the resync is acknowledged", func() bool {
		for s := range pty.sockets {
			return s.acked == uint64(len(pty.log))
		}
		return false
	})
	alice.check()
	relay.check(t)
}
