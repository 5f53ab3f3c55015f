package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/fairlead/fairlead/protocol"
)

// continueIn has the conversation go on in a new terminal, if that was asked for.
func (f *fakeRelay) continueIn(p *fakePTY, r *http.Request) {
	var body struct{ Conversation protocol.ConversationID }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Conversation == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.info.Command, p.info.Conversation = "claude", body.Conversation
	f.chat.continued++
}

// chatHistory serves what was said.
func (f *fakeRelay) chatHistory(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, 200, map[string]any{"success": true, "data": json.RawMessage(`{"messages":[` + strings.Join(f.chat.rows, ",") + `],"hasMore":false}`)})
}

// said adds rows to the history.
func (f *fakeRelay) said(role string, texts ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, text := range texts {
		f.chat.rows = append(f.chat.rows, `{"kind":"text","id":"`+text+`","role":"`+role+`","content":"`+text+`"}`)
	}
}

// testChatElsewhere: a conversation goes on in a terminal, wide and on a phone;
// nothing is sent meanwhile, and what was said there stands in the chat.
func testChatElsewhere(t *testing.T, browser context.Context) {
	wide := command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1400, Height: 900, DeviceScaleFactor: 1})
	for name, prepare := range map[string][]step{"wide": {wide}, "phone": phone()} {
		t.Run(name, func(t *testing.T) { chatElsewhere(t, browser, name, append(prepare, axeCore(t))...) })
	}
}

func chatElsewhere(t *testing.T, browser context.Context, name string, prepare ...step) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapChat, protocol.CapApprove)
	relay.said("user", "by chat")
	for i := range 40 {
		relay.said("assistant", fmt.Sprint("answer ", i))
	}
	alice := newTab(t, browser, prepare...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	look := func(state string) {
		t.Helper()
		alice.axe("the chat, " + state)
		alice.picture("chat-elsewhere-" + name + "-" + state)
		if eval[bool](alice, `document.documentElement.scrollWidth > innerWidth || document.querySelector('#chat').scrollWidth > document.querySelector('#chat').clientWidth`) {
			t.Errorf("%s: the chat is wider than its place", state)
		}
	}
	openChat := func() {
		t.Helper()
		alice.eval(`document.querySelector('#chat').hidden && document.querySelector('[data-testid=btn-chat]').click()`)
	}
	openChat()
	alice.until(`document.querySelector('[data-testid="chat-` + string(conversation) + `"]')`)
	alice.eval(`document.querySelector('[data-testid="chat-` + string(conversation) + `"]').click()`)
	relay.followed(t)
	const enabled, disabled = `!document.querySelector('[data-testid=btn-chat-continue]').disabled`, `document.querySelector('[data-testid=btn-chat-continue]').disabled`
	alice.until(enabled + ` && document.querySelector('[data-testid=btn-chat-continue]').checkVisibility()`)
	look("here")
	relay.chats(t, `"kind":"control_state","controller":"usr_bob","requests":[],"state":"held"`)
	alice.until(disabled)
	relay.chats(t, `"kind":"control_state","controller":"usr_alice","requests":[],"state":"held"`, `"kind":"text","id":"m1","seq":1,"role":"user","content":"work"`)
	alice.until(disabled + ` && document.querySelector('[data-testid=btn-chat-continue]').title.includes('stop it first')`)
	if shown := eval[bool](alice, `document.querySelector('[data-testid=btn-chat-continue]').checkVisibility()`); shown != (name == "wide") {
		t.Errorf("on a %s screen a button for what can't be done is shown: %t", name, shown)
	}
	relay.chats(t, `"kind":"complete","id":"e1","seq":2,"exitCode":0,"success":true,"aborted":false`)
	alice.until(enabled)

	alice.eval(`document.querySelector('[data-testid=btn-chat-continue]').click()`)
	alice.until(`document.querySelectorAll('[role=tab]').length === 2 && document.querySelector('[role=tab][aria-selected=true]').innerText.includes('claude')`)
	if closed := eval[bool](alice, `document.querySelector('#chat').hidden`); closed != (name == "phone") {
		t.Errorf("on a %s screen the chat is hidden: %t", name, closed)
	}
	pty := eval[string](alice, `document.querySelector('[role=tab][aria-selected=true]').dataset.testid.slice(4)`)
	openChat()
	relay.chats(t, `"kind":"run_state","state":"idle","terminal":"`+pty+`"`)
	alice.untilText("chat-elsewhere", "goes on in the terminal “claude”")
	const atEnd = `((box) => box.scrollHeight - box.scrollTop - box.clientHeight < 2)(document.querySelector('#chat-scroll'))`
	alice.until(atEnd)
	alice.until(hidden("btn-chat-continue"))
	alice.until(`document.querySelector('[data-testid=btn-chat-send]').disabled`)
	look("there")
	alice.eval(`document.querySelector('[data-testid=chat-text]').focus()`)
	alice.typing("too early\r")

	// What is said there comes by the history.
	relay.said("user", "in the terminal")
	relay.chats(t, `"kind":"session_upserted","provider":"claude","session":{"id":"x","summary":"Mend the build","lastActivity":"2026-03-14T09:26:53Z"},"project":null`)
	alice.untilText("chat-talk", "in the terminal")
	alice.until(atEnd)
	alice.eval(`document.querySelector('[data-testid=btn-chat-show]').click()`)
	alice.until(`document.querySelector('#chat').hidden === ` + map[string]string{"wide": "false", "phone": "true"}[name])
	openChat()
	alice.eval(`document.querySelector('[data-testid=btn-chat-end]').click()`)
	alice.until(`document.querySelector("#ask").open && document.querySelector("#ask-title").innerText === "Back to the chat?"`)
	look("asked")
	alice.eval(`document.querySelector("#ask-yes").click()`)
	alice.until(`document.querySelectorAll('[role=tab]').length === 1`)
	relay.said("assistant", "last words")
	relay.chats(t, `"kind":"run_state","state":"idle"`)
	alice.until(hidden("chat-elsewhere"))
	alice.untilText("chat-talk", "last words")
	alice.until(`!document.querySelector('[data-testid=btn-chat-send]').disabled && document.querySelector('[data-testid=chat-text]').value === 'too early'`)
	relay.mu.Lock()
	if relay.heard(`"chat.send"`) != 0 || relay.chat.continued != 1 {
		t.Errorf("it went on %d times, and was sent %q", relay.chat.continued, relay.chat.heard)
	}
	relay.mu.Unlock()
	alice.check()
	relay.check(t)
}
