package console_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol"
)

// look makes a tab hidden, or seen again, as far as its page can tell.
func (b *tab) look(away bool) {
	b.Helper()
	value := "false"
	if away {
		value = "true"
	}
	b.eval(`Object.defineProperty(document, 'hidden', {value: ` + value + `, configurable: true})`)
	b.eval(`document.dispatchEvent(new Event('visibilitychange'))`)
}

// An agent that has finished its turn waits, and people type meanwhile; what it
// said last is there for everybody, as text.
func testTurns(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapMCP)
	pty := relay.pty("pty_1")
	relay.add("pty_2", "usr_alice", "/usr/bin/htop")
	alice, bob := newTab(t, browser), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	alice.click("btn-agent-start")
	alice.click("agent-claude")
	alice.untilText("controller", "Claude has control")

	alice.look(true)
	relay.finish(pty, protocol.AgentStoppedMessage{
		Agent: "claude-code", LastMessage: "All <b>tests</b> pass.\n\u202eShall I go on?", Reason: protocol.StopComplete, Timestamp: 1_773_480_413_000,
	})
	alice.until(`document.title === '● Claude is waiting for you · fairlead'`)
	alice.look(false)
	alice.until(`!document.title.includes('●')`)
	alice.untilText("agent-text", "Claude is waiting for you")
	alice.until(`document.querySelector('[data-testid=agent]').innerText.includes('you can type') && ` + hidden("btn-agent-pause") + ` && !(` + hidden("btn-agent-stop") + `)`)
	bob.untilText("agent", "Claude is waiting for you")
	bob.untilText("agent", "alice can type")
	alice.untilText("controller", "You have control")
	alice.focusTerminal()
	alice.typing("echo $((6*7))\r")
	alice.untilScreen("\n42\n")
	alice.until(hidden("btn-hint") + ` && !document.querySelector('[data-testid=hint]').innerText.includes('pause it')`)

	// The panel says what it said, to a newcomer too.
	bob.open(relay.link("bob"))
	bob.untilText("agent-text", "Claude is waiting for you")
	for _, b := range []*tab{alice, bob} {
		b.click("btn-agent-details")
		b.untilText("agent-now", "Claude is waiting for you")
		b.untilText("agent-message", "All <b>tests</b> pass.\n⟨U+202E⟩Shall I go on?")
		b.untilText("agent-turn", "Claude has finished its turn")
	}
	alice.untilText("agent-tools", "Tools: 2")
	bob.until(hidden("agent-tools")) // may not ask, and wasn't told
	relay.mu.Lock()
	relay.toolsOf("pty_1", []string{"browser_navigate", "file_read", "terminal_read"})
	relay.mu.Unlock()
	alice.untilText("agent-tools", "Tools: 3")
	bob.untilText("agent-tools", "Tools: 3")
	alice.eval(`document.querySelector('#agent-tools-all').open = true`)
	alice.untilText("agent-tools", "file_read")

	relay.prompt(pty)
	alice.untilText("agent-now", "Claude is working")
	alice.until(`document.activeElement.closest('#agent-panel') !== null`)
	alice.typing(kb.Escape)
	alice.until(hidden("agent-panel") + ` && document.activeElement.matches('.xterm-helper-textarea')`)

	// Somebody looks at another terminal, and is told.
	alice.click("tab-pty_2")
	alice.untilText("controller", "You have control")
	relay.finish(pty, protocol.AgentStoppedMessage{Agent: "claude", Reason: protocol.StopError, Timestamp: 1_773_480_500_000})
	alice.untilText("hint", "Claude could not go on in shell")
	alice.click("btn-hint")
	alice.untilText("agent-text", "Claude is waiting for you")

	// An agent that was started by hand.
	relay.finish(relay.pty("pty_2"), protocol.AgentStoppedMessage{Agent: "codex", LastMessage: strings.Repeat("x", protocol.MaxLastMessage), Reason: protocol.StopInterrupted, Timestamp: 1})
	alice.click("tab-pty_2")
	alice.untilText("agent-text", "Codex was interrupted")
	alice.check()
	bob.check()
	relay.check(t)
}
