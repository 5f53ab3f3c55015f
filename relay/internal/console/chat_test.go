package console_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol"
)

// hostileMarkdown tries what must not become an element, a request or a link.
const hostileMarkdown = "<script>window.owned = 1</script>\\n\\n<img src=x onerror='window.owned = 2'>\\n\\n[run](javascript:window.owned=3) [data](data:text/html,x) ![pixel](https://tracker.example/p.png)\\n\\n# Done\\n\\n#### Far below\\n\\n- **one**\\n- `two`\\n\\n```go\\nfunc main() {}\\n```"

// testChat looks at the chat in all its states, wide and on a phone.
func testChat(t *testing.T, browser context.Context) {
	wide := command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1400, Height: 900, DeviceScaleFactor: 1})
	dark := command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	for name, prepare := range map[string][]step{"wide": {wide}, "phone": append(phone(), dark)} {
		t.Run(name, func(t *testing.T) { chatStates(t, browser, name, append(prepare, axeCore(t))...) })
	}
}

func chatStates(t *testing.T, browser context.Context, name string, prepare ...step) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapChat, protocol.CapApprove)
	alice := newTab(t, browser, prepare...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	look := func(state string) {
		t.Helper()
		alice.axe("the chat, " + state)
		alice.picture("chat-" + name + "-" + strings.ReplaceAll(state, " ", "-"))
		if eval[bool](alice, `document.documentElement.scrollWidth > innerWidth || document.querySelector('#chat').scrollWidth > document.querySelector('#chat').clientWidth`) {
			t.Errorf("%s: the chat is wider than its place", state)
		}
	}
	alice.eval(`document.querySelector('[data-testid=btn-chat]').click()`)
	alice.untilText("chat-list", "Mend the build")
	alice.untilText("chat-list", "at work")
	look("list")
	alice.click("chat-" + string(conversation))
	alice.until(`document.activeElement.matches('[data-testid=chat-text]')`)
	relay.until(t, "the conversation is followed", func() bool { return len(relay.chat.sockets) == 1 })
	if height := eval[float64](alice, `document.querySelector('[data-testid=chat-text]').offsetHeight`); height < 40 {
		t.Errorf("there are %v pixels to write in", height)
	}
	look("empty")

	relay.chats(t, `"kind":"control_state","controller":"usr_alice","requests":[],"state":"held"`,
		`"kind":"text","id":"u1","seq":1,"role":"user","content":"Mend it, please","from":{"userId":"usr_bob","name":"bob"}`,
		`"kind":"stream_delta","id":"d1","seq":2,"content":"I look at"`, `"kind":"stream_delta","id":"d1","seq":3,"content":" the **build**"`)
	alice.untilText("chat-talk", "the build")
	alice.until(`document.querySelector('#chat-scroll').getAttribute('aria-busy') === 'true'`) // no reader is flooded
	look("streaming")
	relay.chats(t, `"kind":"stream_end","id":"d1","seq":4`, `"kind":"text","id":"a1","seq":5,"role":"assistant","content":"`+hostileMarkdown+`"`,
		`"kind":"tool_use","id":"t1","seq":6,"toolId":"t1","toolName":"Bash","toolInput":{"command":"go test ./...","run_in_background":true}`,
		`"kind":"tool_result","id":"t1r","seq":7,"toolId":"t1","content":"ok","isError":false`,
		`"kind":"tool_use","id":"t2","seq":8,"toolId":"t2","toolName":"Edit","toolInput":{"file_path":"main.go","old_string":"a\nb","new_string":"a\nc"}`)
	alice.until(`document.querySelectorAll('[data-testid=chat-used]').length === 2`)
	if bad := eval[string](alice, `[window.owned ?? '', ...[...document.querySelectorAll('#chat-rows :is(script, img, iframe, [onerror], a:not([href^="http"]))')].map((e) => e.outerHTML)].join('')`); bad != "" {
		t.Errorf("what an agent says has become %s", bad)
	}
	look("folded")
	alice.eval(`document.querySelectorAll('[data-testid=chat-used] details').forEach((d) => { d.open = true })`)
	alice.untilText("chat-used", "run_in_background")
	look("unfolded")

	// A question has one place: the panel while that shows it, else a card.
	asks := `{"command":"rm -r build","timeout":5}`
	relay.ask(tool("apr_1", "Bash", asks), 50*time.Second)
	alice.untilText("approval-apr_1", "rm -r build")
	relay.chats(t, `"kind":"permission_request","id":"p1","seq":9,"requestId":"apr_1","toolName":"Bash","input":`+asks+`,"expiresAt":"`+time.Now().Add(50*time.Second).UTC().Format(time.RFC3339)+`"`)
	alice.untilText("chat-asked", "timeout")
	alice.until(`/\d+ s left/.test(document.querySelector('[data-testid=chat-left]').innerText) && !document.querySelector('[data-testid=approval-apr_1]')`)
	look("permission")
	alice.typing(kb.Escape)
	alice.untilText("approval-apr_1", "rm -r build")
	alice.eval(`document.querySelector('[data-testid=approval-apr_1] .link').click()`)
	alice.until(`!document.querySelector('[data-testid=approval-apr_1]') && document.activeElement.matches('[data-testid=chat-text]')`)
	alice.eval(`document.querySelector('[data-testid=btn-chat-allow]').click()`)
	relay.until(t, "the answer arrives", func() bool {
		return len(relay.chat.heard) > 0 && strings.Contains(relay.chat.heard[len(relay.chat.heard)-1], `"requestId":"apr_1","allow":true`)
	})
	relay.settle("apr_1", "usr_alice", protocol.AllowOnce)
	relay.chats(t, `"kind":"permission_cancelled","id":"p1c","seq":10,"requestId":"apr_1","reason":"decided","from":{"userId":"usr_alice"},"decision":"allow_once"`,
		`"kind":"permission_request","id":"p2","seq":11,"requestId":"apr_2","toolName":"AskUserQuestion","input":{"questions":[{"question":"Which database?","header":"DB","multiSelect":false,"options":[{"label":"SQLite","description":"a file"},{"label":"Postgres","description":"a server"}]}]}`)
	alice.untilText("chat-talk", "Which database?")
	alice.until(`((q) => q.bottom <= innerHeight && q.bottom > 0)([...document.querySelectorAll('[data-testid=chat-asked]')].at(-1).getBoundingClientRect())`)                                                                            // though a tool's use is unfolded
	alice.until(`((button, box) => button?.height > 0 && button.bottom <= box.bottom)(document.querySelector('[data-testid=btn-chat-answer]')?.getBoundingClientRect(), document.querySelector('#chat-scroll').getBoundingClientRect())`) // though they come later
	look("question")

	// Enter queues while the agent works, Shift+Enter begins a line.
	alice.run(focus("chat-text"))
	alice.typing("one")
	line := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13, Modifiers: shift}
	alice.run(command(input.DispatchKeyEvent, line))
	alice.typing("more\r")
	alice.untilText("chat-outgoing", "one\nmore")
	alice.untilText("chat-outgoing", "Waits until the present turn is over")
	look("queued")
	relay.chats(t, `"kind":"control_state","controller":"usr_bob","requests":[],"state":"held"`)
	alice.untilText("chat-note", "bob is writing here")
	alice.untilText("btn-chat-send", "Ask to write")
	alice.until(hidden("btn-chat-stop"))
	look("refused")
	relay.mu.Lock()
	relay.chat.down = true
	for c := range relay.chat.sockets {
		c.CloseNow()
	}
	relay.mu.Unlock()
	alice.untilText("chat-note", "Not connected")
	look("offline")
	alice.check()
}
