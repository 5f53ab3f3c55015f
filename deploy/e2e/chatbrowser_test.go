package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// openChat opens the console with a conversation in its panel, or with the list
// of all.
func openChat(t *testing.T, s *Stack, user string, id protocol.ConversationID, width, height int64) *window {
	t.Helper()
	w := openWindow(t, "chat-"+user, s.Ready.Relays[0].URL+"/#token="+s.Ready.Users[user].Token, width, height)
	w.until(`document.querySelector('[data-testid=status]')?.innerText.includes('Connected')`)
	w.tool("btn-chat")
	if id != "" {
		w.click("chat-" + string(id))
		w.until(`document.querySelector('[data-testid=chat-talk]').checkVisibility()`)
	}
	return w
}

// said counts, in JavaScript, the texts in the panel that hold text.
func said(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('[data-testid=chat-said]')].filter((row) => row.innerText.includes(%q)).length`, text)
}

// message writes a message to the coding agent and sends it by Enter.
func (w *window) message(text string) {
	w.t.Helper()
	w.run(chromedp.Focus(chromedp.CSS(selector("chat-text"))))
	w.write(text)
	w.press("Enter", 13)
}

// TestChatInTheBrowser: alice begins a conversation, bob and carol see every
// event of it, bob can't write while alice does but allows what her agent asks,
// and after a reload all that was said is there.
func TestChatInTheBrowser(t *testing.T) {
	s := talkStack(t, "")
	alice := openChat(t, s, "alice", "", 1400, 900)
	alice.until(`document.querySelector('[data-testid=chat-provider] option[value=claude]')`)
	alice.shoot("list")
	alice.click("btn-chat-create")
	alice.until(`document.activeElement.matches('[data-testid=chat-text]')`)
	id := protocol.ConversationID(eval[string](alice, `Object.entries(sessionStorage).find(([key]) => key.endsWith('chat'))[1]`))
	bob := openChat(t, s, "bob", id, 1400, 900)
	carol := openChat(t, s, "carol", id, 390, 844)
	all := []*window{alice, bob, carol}

	alice.message("say:**strong** and `code`, <b>no element</b>\nask:Bash {\"command\":\"echo asked-$((40+2))\"}\nsay:over-and-out")
	for _, w := range all {
		w.until(`document.querySelector('[data-testid=chat-said] strong')?.innerText === 'strong' && !document.querySelector('[data-testid=chat-said] b')`)
		w.untilText("chat-asked", "May it use Bash?")
		w.shoot("asked")
	}
	bob.untilText("chat-note", "alice is writing here")
	bob.untilText("btn-chat-send", "Ask to write")
	carol.until(`!document.querySelector('[data-testid=chat-text]').checkVisibility() && !document.querySelector('[data-testid=btn-chat-allow]').checkVisibility()`)
	bob.click("btn-chat-allow")
	for _, w := range all {
		w.until(said("over-and-out") + " === 2") // alice's words, and the agent's
		w.until(`document.querySelector('[data-testid=chat-talk]').dataset.running === 'false'`)
		w.until(`document.querySelector('[data-testid=chat-used]')?.dataset.state === 'done'`)
		w.run(chromedp.Click(chromedp.CSS(selector("chat-used")+" summary"), chromedp.NodeVisible))
		w.untilText("chat-used", "asked-42")
		w.shoot("done")
	}

	// A turn that is stopped, and what was queued meanwhile.
	alice.message("deltas:100000@50")
	alice.until(`document.querySelector('[data-testid=chat-said][data-live]')`)
	alice.message("say:queued")
	alice.untilText("chat-outgoing", "Waits until the present turn is over")
	alice.shoot("queued")
	alice.click("btn-chat-stop")
	for _, w := range all {
		w.until(said("queued") + " >= 2")
		w.until(`document.querySelector('[data-testid=chat-talk]').dataset.running === 'false'`)
	}

	// bob asks, alice lets him.
	bob.message("say:by-bob")
	bob.untilText("btn-chat-send", "Asked")
	alice.untilText("chat-note", "bob would like to write")
	alice.shoot("wanted")
	alice.click("btn-chat-grant")
	bob.untilText("btn-chat-send", "Send")
	bob.click("btn-chat-send")
	for _, w := range all {
		w.until(said("by-bob") + " >= 2")
	}

	alice.run(devtools(page.Reload, page.ReloadParams{}))
	alice.until(`window.fairlead && document.querySelector('[data-testid=status]')?.innerText.includes('Connected') && !document.querySelector('[data-testid=chat-talk]').checkVisibility()`)
	alice.tool("btn-chat")
	alice.until(said("by-bob") + " >= 2 && " + said("over-and-out") + " === 2")
	alice.shoot("reloaded")
}
