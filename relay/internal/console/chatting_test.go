package console_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol"
)

// chatting opens a conversation as alice, who may do everything in it.
func chatting(t *testing.T, browser context.Context) (*fakeRelay, *tab) {
	t.Helper()
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapChat, protocol.CapApprove)
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.eval(`document.querySelector('[data-testid=btn-chat]').click()`)
	alice.until(`document.querySelector('[data-testid="chat-` + string(conversation) + `"]')`)
	alice.click("chat-" + string(conversation))
	relay.followed(t)
	return relay, alice
}

// followed waits until the conversation is followed.
func (f *fakeRelay) followed(t testing.TB) {
	t.Helper()
	f.until(t, "the conversation is followed", func() bool { return len(f.chat.sockets) == 1 })
}

// heard returns how many frames the page has sent that have all of parts.
func (f *fakeRelay) heard(parts ...string) (n int) {
	for _, frame := range f.chat.heard {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(frame, part)
		}
		if found {
			n++
		}
	}
	return n
}

// Questions: no click on what was there before answers one, an answer says
// something, everybody is told who has answered, and all of it can be done and
// heard without seeing.
func testChatQuestions(t *testing.T, browser context.Context) {
	relay, alice := chatting(t, browser)
	relay.chats(t, `"kind":"presence","count":2,"viewers":[{"user_id":"usr_alice","name":"alice"},{"user_id":"usr_carl","name":"carl"}]`)

	// Its buttons come when it has been seen for a moment.
	alice.eval(`(() => {
		const seen = new MutationObserver(() => {
			const button = document.querySelector('[data-testid=btn-chat-allow]');
			if (button !== null) window.early ??= button.checkVisibility();
		});
		seen.observe(document.querySelector('#chat'), {subtree: true, childList: true, attributes: true});
	})()`)
	relay.chats(t, `"kind":"permission_request","id":"p1","seq":1,"requestId":"apr_1","toolName":"Bash","input":{"command":"ls"}`)
	alice.until(`document.querySelector('[data-testid=btn-chat-allow]')?.checkVisibility()`)
	if eval[bool](alice, `window.early`) {
		t.Error("a question has buttons from the first moment on")
	}
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('[data-testid=chat-asked]')`)
	var order []string
	for range 9 {
		alice.typing("\t")
		order = append(order, eval[string](alice, `((e) => e.dataset.testid ?? (e.id || e.tagName))(document.activeElement)`))
	}
	if got, want := strings.Join(order, " "), "PRE btn-chat-allow btn-chat-always btn-chat-deny chat-reason chat-text chat-pick chat-mode btn-chat-stop"; got != want {
		t.Errorf("Tab leads to %s\nwant %s", got, want)
	}
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('[data-testid=chat-asked]')`)
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('.xterm-helper-textarea')`)
	alice.typing(kb.F6)
	alice.until(`document.activeElement.matches('[data-testid=chat-asked]')`)
	relay.chats(t, `"kind":"permission_cancelled","id":"c1","seq":2,"requestId":"apr_1","reason":"decided","from":{"userId":"usr_carl"},"decision":"deny"`)
	alice.untilText("chat-outcome", "carl denied it")
	alice.until(`!document.querySelector('[data-testid=chat-asked] pre').checkVisibility()`) // the tool's use shows it

	// A question of the agent's own is read out, and wants an answer.
	relay.chats(t, `"kind":"permission_request","id":"p2","seq":3,"requestId":"apr_2","toolName":"AskUserQuestion","input":{"questions":[
		{"question":"Which database?","multiSelect":false,"options":[{"label":"SQLite"},{"label":"Postgres"}]},
		{"question":"Which tests?","multiSelect":true,"options":[{"label":"unit"},{"label":"race"}]}]}`)
	alice.untilText("chat-news", "The agent asks: Which database? Which tests? F6 leads to the answers.")
	if role := eval[string](alice, `document.querySelector('#chat-news').role`); role != "status" {
		t.Errorf("a screen reader is told by a %s", role)
	}
	second := `[...document.querySelectorAll('[data-testid=chat-asked]')].at(-1)`
	alice.until(second + `.querySelector('[data-testid=btn-chat-answer]').checkVisibility()`)
	answer := func() { alice.eval(second + `.querySelector('[data-testid=btn-chat-answer]').click()`) }
	answer()
	alice.untilText("chat-answer-problem", "Choose one, or write another answer, to “Which database?”")
	alice.until(`document.activeElement.matches('input[name=q0]')`)
	alice.typing(" ")
	alice.until(`document.activeElement.checked && document.querySelector('[data-testid=chat-answer-problem]').innerText === ''`)
	answer()
	alice.untilText("chat-answer-problem", "Choose at least one, or write another answer, to “Which tests?”")
	alice.eval(second + `.querySelector('input[name=other1]').focus()`)
	alice.typing("   ")
	answer()
	alice.untilText("chat-answer-problem", "Choose at least one")
	alice.eval(second + `.querySelector('input[name=other1]').focus()`)
	alice.typing("none")
	answer()
	relay.until(t, "the answer arrives", func() bool {
		return relay.heard(`"answers":{"Which database?":"SQLite","Which tests?":"none"}`) == 1 && relay.heard(`"chat.permission-response"`) == 1
	})

	// An answer that was lost can be given again.
	relay.mu.Lock()
	relay.chat.ack = `"isProcessing":true,"lastSeq":3,"pendingPermissions":[{"requestId":"apr_2","toolName":"AskUserQuestion","input":null,"receivedAt":""}]`
	for c := range relay.chat.sockets {
		c.CloseNow()
	}
	relay.mu.Unlock()
	alice.until(second + `.querySelector('[data-testid=btn-chat-answer]').checkVisibility()`)
	alice.check()
	relay.check(t)
}

// Messages: what waits goes once, also after a reload, and files that can't be
// sent take nothing away.
func testChatMessages(t *testing.T, browser context.Context) {
	relay, alice := chatting(t, browser)
	drop := func(event, name, mime string, bytes int) {
		t.Helper()
		alice.eval(fmt.Sprintf(`(() => {
			const data = new DataTransfer();
			data.items.add(new File([new Uint8Array(%d)], %q, {type: %q}));
			const target = document.querySelector(%q === 'paste' ? '#chat-text' : '#chat-rows');
			const event = %q === 'paste' ? new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})
				: new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
			target.dispatchEvent(event);
			window.taken = event.defaultPrevented;
		})()`, bytes, name, mime, event, event))
		if !eval[bool](alice, `window.taken`) {
			t.Errorf("the browser would leave the page for %s", name)
		}
	}
	alice.run(focus("chat-text"))
	alice.typing("look at this")
	drop("drop", "notes.txt", "text/plain", 5)
	alice.untilText("chat-problem", "“notes.txt” can’t be sent: images may be JPEG, PNG, GIF or WebP.")
	drop("paste", "huge.png", "image/png", 5<<20+1)
	alice.untilText("chat-problem", "“huge.png” is too large: an image may have 5 MiB.")
	drop("paste", "large.png", "image/png", 700<<10)
	alice.untilText("chat-images", "large.png")
	drop("drop", "small.png", "image/png", 9)
	alice.untilText("chat-images", "small.png")
	alice.run(focus("chat-text"))
	alice.typing("\r")
	relay.until(t, "the images arrive", func() bool {
		return relay.heard(`"content":"look at this"`, `"data":"/api/assets/large.png"`, `"data":"data:image/png;base64,AAAAAAAAAAAA"`) == 1
	})
	relay.chats(t, `"kind":"text","id":"u1","seq":1,"role":"user","content":"look at this","clientMessageId":"`+relay.lastName()+`"`)
	alice.until(`document.querySelector('[data-testid=chat-outgoing]') === null`)
	relay.mu.Lock()
	relay.chat.refuseUploads = true
	relay.mu.Unlock()
	alice.run(focus("chat-text"))
	alice.typing("one")
	drop("paste", "lost.png", "image/png", 700<<10)
	alice.untilText("chat-problem", "“lost.png” can’t be uploaded: File too large")

	// Two messages wait for the end of the turn, and the page is left meanwhile.
	alice.run(focus("chat-text"))
	alice.typing("\rtwo\r")
	alice.until(`document.querySelectorAll('[data-testid=chat-outgoing]').length === 2`)
	relay.mu.Lock()
	relay.chat.ack = `"isProcessing":true,"lastSeq":1,"pendingPermissions":[]`
	relay.mu.Unlock()
	alice.run(command(page.Reload, page.ReloadParams{}))
	relay.until(t, "the page is back", func() bool { return relay.chat.subscribed == 2 && len(relay.chat.sockets) == 1 })
	if n := relay.sent(); n != 1 {
		t.Errorf("%d messages were sent within a run", n)
	}
	relay.chats(t, `"kind":"complete","id":"e1","seq":2,"success":true,"aborted":false,"exitCode":0`)
	relay.until(t, "the first is sent", func() bool { return relay.heard(`"content":"one"`) == 1 && relay.heard(`"content":"two"`) == 0 })
	alice.until(`document.querySelector('[data-testid=btn-chat]')?.checkVisibility()`)
	alice.eval(`document.querySelector('[data-testid=btn-chat]').click()`)
	alice.until(`[...document.querySelectorAll('[data-testid=chat-outgoing]')].map((row) => row.innerText.includes('Sending')).join() === 'true,false'`)
	relay.chats(t, `"kind":"text","id":"u2","seq":3,"role":"user","content":"one","clientMessageId":"`+relay.lastName()+`"`,
		`"kind":"complete","id":"e2","seq":4,"success":true,"aborted":false,"exitCode":0`)
	relay.until(t, "the second is sent", func() bool { return relay.heard(`"content":"two"`) == 1 })

	// It came while something ran after all: it waits again, and isn't lost.
	relay.chats(t, `"kind":"run_state","state":"running"`, `"kind":"protocol_error","code":"RUN_IN_PROGRESS","error":"x","clientMessageId":"`+relay.lastName()+`"`)
	alice.untilText("chat-outgoing", "Waits")
	relay.chats(t, `"kind":"complete","id":"e3","seq":5,"success":true,"aborted":false,"exitCode":0`)
	relay.until(t, "it is sent again", func() bool { return relay.heard(`"content":"two"`) == 2 })
	relay.chats(t, `"kind":"text","id":"u3","seq":6,"role":"user","content":"two","clientMessageId":"`+relay.lastName()+`"`)
	alice.until(`!Object.keys(sessionStorage).some((key) => key.includes('unsent'))`)

	// What is too long stays where it was written.
	alice.eval(`document.querySelector('#chat-text').value = 'x'.repeat(2 ** 20)`)
	alice.run(focus("chat-text"))
	alice.typing("\r")
	alice.untilText("chat-problem", "That is too long")
	alice.until(`document.querySelector('#chat-text').value.length === 2 ** 20`)
	alice.check()
	relay.check(t)
}
