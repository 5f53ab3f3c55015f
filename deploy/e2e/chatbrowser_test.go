package e2e

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
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

// offline has the browser lose the network, or find it again.
func (w *window) offline(on bool) {
	w.t.Helper()
	w.run(devtools(network.Enable, network.EnableParams{}), devtools(network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{DownloadThroughput: -1, UploadThroughput: -1, Offline: on}},
	}), devtools(network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: on, DownloadThroughput: -1, UploadThroughput: -1}))
}

// noise writes a picture that nothing makes smaller, and returns how many bytes
// it is.
func noise(t *testing.T, path string, width, height int) int {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range m.Pix {
		m.Pix[i] = byte(random.Uint32())
	}
	var data bytes.Buffer
	must(t, png.Encode(&data, m))
	must(t, os.WriteFile(path, data.Bytes(), 0o644))
	return data.Len()
}

// dropFile drops a file of the disk on the conversation, as a mouse does. A browser
// that is busy may not have answered the drag when the drop comes, and then there is
// none: so it is done until the page has had it.
func (w *window) dropFile(path string) {
	w.t.Helper()
	eval[any](w, `(() => { window.dropped = false; addEventListener('drop', () => { window.dropped = true }, {capture: true, once: true}) })()`)
	for !eval[bool](w, "window.dropped") {
		at := eval[[]float64](w, `((r) => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector('#chat-scroll').getBoundingClientRect())`)
		for _, kind := range []input.DispatchDragEventType{"dragEnter", "dragOver", "drop"} {
			w.run(devtools(input.DispatchDragEvent, input.DispatchDragEventParams{Type: kind, X: at[0], Y: at[1], Data: &input.DragData{
				Items: []*input.DragDataItem{}, Files: []string{path}, DragOperationsMask: 1,
			}}))
		}
	}
}

// pasteImage copies a small picture, and pastes it into whatever has the focus.
func (w *window) pasteImage() {
	w.t.Helper()
	for _, name := range []string{"clipboard-write", "clipboard-read"} {
		w.run(devtools(browser.SetPermission, browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: "granted"}))
	}
	eval[any](w, `(() => {
		const canvas = document.createElement('canvas');
		canvas.width = canvas.height = 8;
		canvas.toBlob((blob) => navigator.clipboard.write([new ClipboardItem({'image/png': blob})]).then(() => { window.copied = true }));
		return null;
	})()`)
	w.until("window.copied")
	w.run(devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: "rawKeyDown", Key: "v", Code: "KeyV", WindowsVirtualKeyCode: 86, Modifiers: 2, Commands: []string{"paste"},
	}), devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyUp", Key: "v", Code: "KeyV", WindowsVirtualKeyCode: 86, Modifiers: 2}))
}

// sendImages: alice adds pictures in each of the ways there are, and the coding
// agent gets them; of what can't be sent she hears, and loses nothing of the rest.
func sendImages(t *testing.T, alice *window) {
	dir := t.TempDir()
	chosen, dropped, notes := filepath.Join(dir, "chosen.png"), filepath.Join(dir, "dropped.png"), filepath.Join(dir, "notes.txt")
	first, second := noise(t, chosen, 40, 30), noise(t, dropped, 600, 400) // more than fits into a frame
	must(t, os.WriteFile(notes, []byte("no image"), 0o644))
	alice.run(chromedp.Focus(chromedp.CSS(selector("chat-text"))))
	alice.write("images")
	alice.dropFile(notes)
	alice.untilText("chat-problem", "“notes.txt” can’t be sent")
	alice.run(chromedp.SetUploadFiles(chromedp.CSS("#chat-pick"), []string{chosen}))
	alice.untilText("chat-images", "chosen.png")
	alice.dropFile(dropped)
	alice.untilText("chat-images", "dropped.png")
	alice.run(chromedp.Focus(chromedp.CSS(selector("chat-text"))))
	alice.pasteImage()
	alice.until(`document.querySelectorAll('[data-testid=chat-images] li').length === 3`)
	alice.shoot("images")
	alice.press("Enter", 13)
	alice.until(said(fmt.Sprintf("3 images: [%d %d ", first, second)) + " === 1")
	alice.untilText("chat-rows", "Image: dropped.png")
}

// loseNetwork: alice's browser loses the network, and the relay is killed, while
// she writes. What she wrote is sent once, and nothing of what is shown is drawn
// anew.
func loseNetwork(t *testing.T, s *Stack, alice *window) {
	alice.until(`document.querySelector('[data-testid=chat-talk]').dataset.running === 'false'`)
	eval[any](alice, `(() => {
		window.gone = [];
		const rows = document.querySelector('#chat-rows');
		const old = new Set([...rows.querySelectorAll('*')].flatMap((element) => [element, ...element.childNodes]));
		new MutationObserver((changes) => {
			for (const { removedNodes } of changes) for (const node of removedNodes) if (old.has(node)) window.gone.push(node.textContent);
		}).observe(rows, {childList: true, subtree: true});
		return null;
	})()`)
	alice.offline(true)
	killRelay(t, s)
	alice.untilText("chat-note", "Not connected")
	alice.message("say:first-away")
	alice.message("say:second-away")
	alice.until(`document.querySelectorAll('[data-testid=chat-outgoing]').length === 2`)
	alice.shoot("away")
	alice.offline(false)
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
	bob.untilText("chat-outcome", "You allowed it")
	for _, w := range []*window{alice, carol} {
		w.untilText("chat-outcome", "bob allowed it")
	}
	for _, w := range all {
		w.until(said("over-and-out") + " === 2") // alice's words, and the agent's
		w.until(`document.querySelector('[data-testid=chat-talk]').dataset.running === 'false'`)
		w.until(`document.querySelector('[data-testid=chat-used]')?.dataset.state === 'done'`)
		w.run(chromedp.Click(chromedp.CSS(selector("chat-used")+" summary"), chromedp.NodeVisible))
		w.untilText("chat-used", "asked-42")
		w.shoot("done")
	}

	// A turn that is stopped, and what was queued before the page was loaded again.
	alice.message("deltas:100000@50")
	alice.until(`document.querySelector('[data-testid=chat-said][data-live]')`)
	alice.message("say:queued")
	alice.untilText("chat-outgoing", "Waits until the present turn is over")
	alice.shoot("queued")
	alice.run(devtools(page.Reload, page.ReloadParams{}))
	alice.until(`window.fairlead && document.querySelector('[data-testid=status]')?.innerText.includes('Connected') && !document.querySelector('[data-testid=chat-talk]').checkVisibility()`)
	alice.tool("btn-chat")
	alice.untilText("chat-outgoing", "Waits until the present turn is over")
	alice.until(said("over-and-out") + " === 2")
	alice.until(`document.querySelector('[data-testid=chat-said][data-live]')?.innerText.startsWith('0:')`) // from its beginning
	alice.shoot("reloaded")
	alice.click("btn-chat-stop")
	for _, w := range all {
		w.until(said("queued") + " === 2") // alice's words, and the agent's
		w.until(`document.querySelector('[data-testid=chat-talk]').dataset.running === 'false'`)
	}

	loseNetwork(t, s, alice)
	for _, w := range all {
		w.until(said("second-away") + " === 2 && " + said("first-away") + " === 2 && " + said("queued") + " === 2")
	}
	alice.until(`document.querySelector('[data-testid=chat-outgoing]') === null`)
	if gone := eval[[]string](alice, `window.gone`); len(gone) > 0 {
		t.Errorf("drawn anew: %q", gone)
	}
	sendImages(t, alice)

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
	continueInBrowser(bob, carol)
}
