package extension_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/extension"
)

// sizes are those in which the panel is looked at: beside a page, on a phone, as a
// tab of its own.
var sizes = []struct {
	name          string
	width, height int64
}{{"phone", 390, 844}, {"wide", 1280, 800}}

// newPanel starts a relay and a browser, and opens the panel's page by a link.
func newPanel(t *testing.T, size int, granted bool) (*fakeRelay, *tab) {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser")
	}
	if !extension.Built() {
		missing(t, "the extension is not built: go run ./deploy/extension/build")
	}
	e, err := extension.Make(extension.Options{Origins: []string{"http://x"}})
	if err != nil {
		t.Fatal(err)
	}
	relay := newFakeRelay(t, e.ID)
	browser := start(t, relay, granted)
	s := sizes[size]
	t.Cleanup(func() { relay.check(t) })
	return relay, newTab(t, browser, s.width, s.height, panel(e.ID)+"#token=ut_alice")
}

// A person's first minutes: the arrow goes, a key starts claude, a relay that is
// killed costs nothing, an end is an end.
func TestTerminal(t *testing.T) {
	for i, size := range sizes {
		t.Run(size.name, func(t *testing.T) {
			relay, alice := newPanel(t, i, false)
			alice.untilText("status", "Connected")
			alice.until(`location.hash === ''`)
			alice.untilText("card", "Press any key")
			alice.shoot("idle")

			// Nothing is asked of the sandbox before a key, nor by one that types nothing.
			alice.run()
			relay.mu.Lock()
			if relay.minted != 0 {
				t.Error("a terminal was asked for before the first key")
			}
			relay.mu.Unlock()
			eval[any](alice, `document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Shift', bubbles: true})) && null`)
			alice.types("x")
			alice.untilScreen("Welcome to Claude Code")
			relay.until(t, "one terminal, told its size first", func() bool {
				return relay.minted == 1 && relay.started == 1 && strings.Contains(relay.heard[0], `"resize"`)
			})
			alice.types("hello\r")
			alice.untilScreen("> hello")
			relay.until(t, "what was typed, without the first key", func() bool { return relay.typed == "hello\r" })
			alice.shoot("live")

			// The connection goes, and what was printed meanwhile is there again.
			relay.do(func() { relay.down = true })
			relay.drop()
			alice.untilText("lost", "connection is lost")
			alice.untilScreen("> hello") // still to be read
			alice.shoot("lost")
			alice.types("w")
			relay.print("printed meanwhile\r\n")
			relay.do(func() { relay.down = false })
			alice.untilScreen("printed meanwhile")
			relay.until(t, "what was typed without a connection", func() bool { return relay.typed == "hello\rw" })
			alice.untilHidden("lost")

			// The page is loaded anew: the same terminal, and its screen.
			alice.reload()
			alice.until(`window.fairlead?.screenText().includes('printed meanwhile')`)
			relay.until(t, "still one start", func() bool { return relay.minted == 1 && relay.started == 1 })

			// What isn't kept any more is over, and begins only when asked for.
			relay.do(func() { relay.gone = true })
			relay.drop()
			alice.untilText("card", "Session ended")
			alice.shoot("ended")
			alice.click("btn-start")
			relay.until(t, "a second terminal", func() bool { return relay.started == 2 })
			alice.check()
		})
	}
}

func TestNoClaude(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	relay.do(func() { relay.absent = true })
	alice.untilText("card", "Press any key")
	alice.click("btn-start")
	alice.untilText("card", "not there")
	alice.shoot("absent")
	alice.check()
}

func TestChat(t *testing.T) {
	for i, size := range sizes {
		t.Run(size.name, func(t *testing.T) {
			relay, alice := newPanel(t, i, false)
			alice.untilText("status", "Connected")
			alice.click("tab-chat")
			alice.untilText("chat", "What shall Claude do?")
			alice.untilText("chat-tabs", "Hacker News")
			alice.shoot("chat-empty")

			alice.say("what is new on hn?")
			alice.untilText("chat-rows", "what is new")
			alice.until(`document.querySelector('[data-testid=chat-dots]').checkVisibility()`)
			relay.until(t, "the message, and no address of hers", func() bool {
				return len(relay.commands) == 1 && relay.commands[0]["message"] == "what is new on hn?" && relay.commands[0]["activeTabUrl"] == nil
			})
			relay.say(
				agentSays(1, "tool_use", map[string]any{"tool": "browser_navigate", "input": "https://news.ycombinator.com"}),
				agentSays(1, "text_delta", map[string]any{"text": "Three things:\n\n"}),
			)
			alice.untilText("chat-rows", "Three things")
			alice.shoot("chat-working")

			// Another tab at the same time: what is said there stays there.
			alice.click("chat-tab-2")
			relay.until(t, "the other tab is in front", func() bool { return relay.active == 2 && len(relay.switched) == 1 })
			alice.untilText("chat", "What shall Claude do?")
			alice.say("what does it cost?")
			relay.until(t, "both messages", func() bool { return len(relay.commands) == 2 && len(relay.entries) == 6 })
			relay.say(
				agentSays(2, "text", map[string]any{"text": "It costs **12 €**. <script>alert(1)</script> ![x](https://evil.example/x.png)"}),
				agentSays(2, "agent_done", nil),
				agentSays(1, "text", map[string]any{"text": "Three things:\n\n1. `fairlead` has a side panel\n2. A browser in a browser\n3. [More](https://news.ycombinator.com/)"}),
				agentSays(1, "agent_done", nil),
			)
			alice.untilText("chat-rows", "It costs 12 €")
			alice.until(`!document.querySelector('[data-testid=chat-rows]').innerText.includes('side panel')`)
			alice.until(`document.querySelector('[data-testid=chat-rows] :is(img, script)') === null`)
			alice.until(`document.querySelector('[data-testid=chat-tab-1]').dataset.tone === 'good'`)
			alice.untilHidden("chat-dots")
			alice.click("chat-tab-1")
			alice.untilText("chat-rows", "has a side panel")
			alice.shoot("chat")

			// Too many: said, and nothing is lost.
			relay.do(func() { relay.full = true })
			alice.say("one more")
			alice.untilText("chat-rows", "Queue full (max 5)")
			alice.shoot("chat-full")
			relay.do(func() { relay.full = false })
			alice.click("chat-again")
			relay.until(t, "sent again", func() bool { return len(relay.commands) == 4 })
			alice.until(`document.querySelectorAll('[data-testid=row-user]').length === 2`)

			// Stopped; the stream ends and comes back where it was.
			alice.click("chat-stop")
			alice.untilText("chat-rows", "Stopped by user")
			followed := relay.followed
			relay.do(func() { relay.down = true })
			relay.until(t, "the end of the stream", func() bool { return relay.streams == 0 })
			relay.do(func() { relay.down = false })
			relay.until(t, "followed again", func() bool { return relay.followed > followed })
			relay.say(agentSays(1, "text", map[string]any{"text": "after the outage"}))
			alice.untilText("chat-rows", "after the outage")
			alice.until(`document.querySelectorAll('[data-testid=row-user]').length === 2`)
			alice.check()
		})
	}
}

// Claude asks: who may approve answers where it is asked, hears of a question in
// another tab, and sees what became of each.
func TestQuestions(t *testing.T) {
	for i, size := range sizes {
		t.Run(size.name, func(t *testing.T) {
			relay, alice := newPanel(t, i, false)
			alice.untilText("status", "Connected")
			alice.click("tab-chat")
			alice.untilText("chat-tabs", "Hacker News")
			alice.say("clean up")
			relay.until(t, "the message", func() bool { return len(relay.commands) == 1 && relay.commands[0]["tabId"] == 1.0 })
			ask := func(id, tool, input string, tab int) {
				relay.say(agentSays(tab, "question", map[string]any{"tool": tool, "input": input, "requestId": id, "revision": 1}))
			}
			ask("apr_1", "Bash", "rm -rf build && make\nmake \u202etest", 1)
			alice.untilText("row-question", "May it use Bash?")
			alice.untilText("row-question", "⟨U+202E⟩test")
			alice.untilText("chat-news", "F6 leads to the answers")
			alice.until(`document.querySelector('[data-testid=btn-chat-allow]').checkVisibility()`) // after a moment
			alice.axe("a question")
			alice.shoot("question")

			// By keyboard alone: to the question, on to Allow.
			alice.until(`(document.querySelector('[data-testid=chat-text]').focus(), document.activeElement?.dataset.testid === 'chat-text')`)
			alice.press("F6")
			alice.until(`document.activeElement.dataset.testid === 'row-question'`)
			for range 2 { // what it is to do can be scrolled, so it is a stop
				alice.press("Tab")
			}
			alice.until(`document.activeElement.dataset.testid === 'btn-chat-allow'`)
			alice.press("Enter")
			relay.until(t, "the answer", func() bool {
				return len(relay.answers) == 1 && relay.answers[0]["requestId"] == "apr_1" && relay.answers[0]["allow"] == true && relay.answers[0]["tabId"] == 1.0
			})
			alice.untilText("row-question", "You allowed it")

			// In another tab: said, and one click away. Somebody else is faster.
			ask("apr_2", "Write", `{"file_path":"/workspace/a","content":"x"}`, 2)
			alice.untilText("chat-elsewhere", "asks something in Shop")
			alice.shoot("question-elsewhere")
			alice.click("chat-elsewhere-show")
			alice.untilText("row-question", "/workspace/a")
			alice.untilHidden("chat-elsewhere")
			relay.say(agentSays(2, "answered", map[string]any{"requestId": "apr_2", "outcome": "denied", "by": "usr_bob"}))
			alice.untilText("row-question", "Somebody else (usr_bob) denied it")

			// One that is cut can't be judged here; one that nobody answers is over.
			relay.say(agentSays(2, "question", map[string]any{"tool": "Bash", "input": "echo much", "requestId": "apr_3", "cut": true}))
			alice.until(`document.querySelectorAll('[data-testid=row-question]')[1]?.innerText.includes('answered in the console')`)
			alice.untilHidden("btn-chat-allow")
			relay.say(agentSays(2, "answered", map[string]any{"requestId": "apr_3", "outcome": "timeout"}))
			alice.until(`document.querySelectorAll('[data-testid=row-question]')[1].innerText.includes('Nobody answered in time')`)
			alice.axe("answered questions")
			alice.shoot("answered")
			alice.check()
		})
	}
}

// What the person writes is for the tab that she sees, also while another comes to
// the front; a chip doesn't go while the list of tabs is on its way.
func TestSeveralTabs(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	alice.click("tab-chat")
	alice.untilText("chat-tabs", "Hacker News")
	alice.until(`(document.querySelector('[data-testid=chat-text]').focus(), document.activeElement?.dataset.testid === 'chat-text')`)
	alice.types("for the first")
	relay.do(func() { relay.active = 2 })
	alice.until(`document.querySelector('[data-testid=chat-tab-2]').dataset.front === ''`)
	alice.until(`document.querySelector('[data-testid=chat-tab-1]').ariaPressed === 'true'`)
	alice.click("chat-tab-2")
	alice.until(`document.querySelector('[data-testid=chat-text]').value === ''`)
	alice.say("for the second")
	alice.click("chat-tab-1")
	alice.until(`document.querySelector('[data-testid=chat-text]').value === 'for the first'`)
	alice.say("")
	relay.until(t, "each in its tab", func() bool {
		return len(relay.commands) == 2 && relay.commands[0]["tabId"] == 2.0 && relay.commands[0]["message"] == "for the second" &&
			relay.commands[1]["tabId"] == 1.0 && relay.commands[1]["message"] == "for the first"
	})
	// A tab that no list has yet.
	relay.say(agentSays(7, "text", map[string]any{"text": "from a new one"}))
	alice.untilText("chat-tab-7", "Tab 7")
	relay.say(agentSays(1, "text", map[string]any{"text": "more"}))
	alice.untilText("chat-rows", "more")
	alice.untilText("chat-tab-7", "Tab 7")
	alice.shoot("tabs")
	alice.check()
}

// A token that is over: the person signs in again, and what she wrote is there.
func TestTokenOver(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	alice.types("x")
	alice.untilScreen("Welcome to Claude Code")
	alice.click("tab-chat")
	alice.untilText("chat-tabs", "Hacker News")
	relay.do(func() { relay.full = true })
	alice.say("refused")
	alice.untilText("chat-rows", "Queue full (max 5)")
	alice.types("a draft")
	relay.do(func() { relay.over = true })
	alice.untilText("sign-in-problem", "Your sign-in is over")
	alice.axe("the way to sign in")
	alice.shoot("token-over")
	if stored := stored(alice, "session"); strings.Contains(stored, "ut_") {
		t.Errorf("a token that is over is kept: %s", stored)
	}
	relay.do(func() { relay.over, relay.full = false, false })
	signIn(alice, relay.URL+"/#token=ut_alice")
	alice.untilText("status", "Connected")
	alice.untilText("chat-tabs", "Hacker News")
	alice.untilText("chat-rows", "refused")
	alice.until(`document.querySelector('[data-testid=chat-text]').value === 'a draft'`)
	alice.click("chat-again")
	relay.until(t, "sent again", func() bool { return len(relay.commands) == 2 })
	alice.click("tab-terminal")
	alice.untilScreen("Welcome to Claude Code")
	relay.until(t, "the terminal goes on", func() bool { return relay.minted == 1 && relay.started == 1 })

	// Who signs out takes all of it along.
	alice.click("tab-chat")
	alice.click("btn-more")
	alice.click("sign-out")
	alice.until(`document.querySelector('[data-testid=chat-text]').value === ''`)
	alice.check()
}

// Without a network it says so, and is back as soon as there is one.
func TestOffline(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	alice.click("tab-chat")
	alice.untilText("chat-tabs", "Hacker News")
	relay.do(func() { relay.down = true })
	alice.offline(true)
	alice.untilText("status", "Offline")
	alice.say("while offline")
	alice.untilText("chat-rows", "Sending")
	alice.axe("an outage")
	alice.shoot("offline")
	relay.do(func() { relay.down = false })
	alice.offline(false)
	alice.untilText("status", "Connected")
	relay.until(t, "the message, once", func() bool { return len(relay.commands) == 1 })
	alice.check()
}

// The panel shows a conversation in the console, and the console one in the panel.
func TestConversationHereAndThere(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	alice.click("tab-chat")
	alice.untilText("chat-tabs", "Hacker News")
	alice.click("btn-more")
	alice.click("chat-console")
	relay.until(t, "the console's page at the conversation", func() bool { return relay.link == "#token=ut_alice&session=ses_1&chat=conv_1" })

	page := newTab(t, alice.ctx, 1280, 800, relay.URL+"/welcome")
	eval[any](page, `(() => {
		const button = document.createElement('button');
		button.dataset.testid = 'show';
		button.textContent = 'Open in side panel';
		document.body.append(button);
		window.heard = [];
		button.onclick = () => document.dispatchEvent(new CustomEvent('fairlead-panel-show', {detail: window.detail}));
		document.addEventListener('fairlead-panel-shown', ({detail}) => heard.push(detail));
		return null;
	})()`)
	show := func(detail string) {
		front(t, page)
		eval[any](page, fmt.Sprintf(`(window.detail = %q, null)`, detail))
		page.click("show")
	}
	show(`{"session":"ses_1","conversation":"../../x"}`)
	show(`{"session":"ses_1","conversation":"conv_2"}`)
	page.until(`window.heard.length === 1 && ['opened', 'closed'].includes(window.heard[0])`)
	front(t, alice)
	alice.until(`document.querySelector('[data-testid=chat-tab-2]').ariaPressed === 'true'`)
	relay.until(t, "the tab is in front", func() bool { return relay.active == 2 })
	for strings.Contains(stored(alice, "session"), "wanted") {
		alice.run()
	}
	alice.check()
	page.check()
}

func agentSays(tab int, kind string, more map[string]any) map[string]any {
	entry := map[string]any{"role": "agent", "type": kind, "tabId": tab}
	for name, value := range more {
		entry[name] = value
	}
	return entry
}

// Nothing is asked for again and again: a panel that is looked at and does nothing
// sends nothing but what has to be renewed.
func TestNoPolling(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	relay.until(t, "the tabs", func() bool { return strings.Contains(strings.Join(relay.asked, "\n"), "/sidebar-tabs") })
	relay.mu.Lock()
	asked := len(relay.asked)
	relay.mu.Unlock()
	// Three seconds of the page's own time pass. The seed's panel asks nine times then.
	eval[any](alice, `(setTimeout(() => window.waited = true, 3000), null)`)
	alice.until(`window.waited`)
	relay.mu.Lock()
	defer relay.mu.Unlock()
	if len(relay.asked) != asked {
		t.Errorf("asked meanwhile: %v", relay.asked[asked:])
	}
}

// The arrow on a page of the relay goes when the panel is connected, not before.
func TestArrow(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	e, _ := extension.Make(extension.Options{Origins: []string{"http://x"}})
	alice.click("btn-more")
	alice.click("sign-out")
	alice.until(`document.body.dataset.view === 'sign-in'`)
	page := newTab(t, alice.ctx, 1280, 800, relay.URL+"/welcome")
	welcome := newTab(t, alice.ctx, 1280, 800, "chrome-extension://"+e.ID+"/welcome.html")
	page.until(`document.querySelector('.arrow').checkVisibility()`)
	welcome.until(`document.querySelector('.arrow').checkVisibility()`)
	welcome.shoot("welcome")
	alice.run() // the panel again
	signIn(alice, relay.URL+"/#token=ut_alice")
	alice.untilText("status", "Connected")
	page.until(`!document.querySelector('.arrow').checkVisibility()`)
	welcome.until(`!document.querySelector('.arrow').checkVisibility()`)
	welcome.shoot("welcomed")
	for _, b := range []*tab{alice, page, welcome} {
		b.check()
	}
}

func signIn(b *tab, link string) {
	b.Helper()
	eval[any](b, fmt.Sprintf(`(() => {
		document.querySelector('[data-testid=sign-in-link]').value = %q;
		document.querySelector('[data-testid=btn-sign-in]').click();
		return null;
	})()`, link))
}

// Whoever has no link, or a wrong one, gets no further, and no token leaves.
func TestSignIn(t *testing.T) {
	relay, alice := newPanel(t, 0, false)
	alice.untilText("status", "Connected")
	alice.click("btn-more")
	alice.shoot("menu")
	alice.click("sign-out")
	alice.shoot("sign-in")
	signIn(alice, "https://evil.example/#token=ut_alice")
	alice.untilText("sign-in-problem", "not built for")
	signIn(alice, relay.URL+"/#token=ut_nobody")
	alice.untilText("sign-in-problem", "not valid any more")
	alice.shoot("refused")
	if stored := stored(alice, "session"); strings.Contains(stored, "ut_") {
		t.Errorf("a token that was refused, or signed out, is kept: %s", stored)
	}
	signIn(alice, relay.URL+"/#token=ut_alice")
	alice.untilText("status", "Connected")
	if stored := stored(alice, "local"); strings.Contains(stored, "ut_") {
		t.Errorf("the token is on the disk: %s", stored)
	}
	alice.check()
}

// Her tab's address leaves only while she has that switched on, and then without
// what is secret in it.
func TestSharedTab(t *testing.T) {
	relay, alice := newPanel(t, 0, true)
	alice.untilText("status", "Connected")
	alice.click("tab-chat")
	alice.untilText("chat-tabs", "Hacker News")
	shop := newTab(t, alice.ctx, 800, 600, "http://localhost:"+relay.URL[strings.LastIndex(relay.URL, ":")+1:]+"/welcome?token=hush&item=7#part")
	eval[any](shop, `(document.title = 'A shop', null)`)
	alice.say("before")
	relay.until(t, "no address", func() bool { return len(relay.commands) == 1 && relay.commands[0]["activeTabUrl"] == nil })
	if relay.mentions("localhost") {
		t.Error("her tab's address left before she switched that on")
	}

	share := func() {
		front(t, alice)
		alice.click("btn-more")
		alice.click("share")
		alice.click("btn-more")
	}
	share()
	front(t, shop)
	relay.until(t, "the address", func() bool {
		return strings.Contains(strings.Join(relay.asked, "\n"), "activeUrl=http%3A%2F%2Flocalhost")
	})
	alice.say("with it")
	relay.until(t, "the address, masked", func() bool {
		if len(relay.commands) != 2 {
			return false
		}
		url, _ := relay.commands[1]["activeTabUrl"].(string)
		return strings.HasSuffix(url, "/welcome?token=***&item=7")
	})

	share()
	for strings.Contains(stored(alice, "local"), "true") {
		alice.run()
	}
	alice.say("without")
	relay.until(t, "no address again", func() bool { return len(relay.commands) == 3 && relay.commands[2]["activeTabUrl"] == nil })
	if relay.mentions("hush") {
		t.Error("what is secret in the address left")
	}
	alice.check()
}

// mentions reports whether any request had text in its address or message.
func (f *fakeRelay) mentions(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := slices.DeleteFunc(slices.Clone(f.asked), func(what string) bool { return strings.HasPrefix(what, "GET /welcome") }) // her own visit
	return strings.Contains(fmt.Sprint(asked, f.commands, f.heard), text)
}

// stored is what one of Chrome's storage areas and the page's own hold.
func stored(b *tab, area string) string {
	b.Helper()
	eval[any](b, fmt.Sprintf(`(window.stored = null, chrome.storage.%s.get(null).then((all) => window.stored = JSON.stringify(all)), null)`, area))
	b.until(`window.stored !== null`)
	return eval[string](b, `window.stored + JSON.stringify({...localStorage, ...sessionStorage})`)
}
