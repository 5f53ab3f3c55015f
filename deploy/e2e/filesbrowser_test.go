package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// press presses a key that types nothing.
func (w *window) press(key string, windows int64) {
	w.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{"rawKeyDown", "keyUp"} {
		w.run(devtools(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Code: key, WindowsVirtualKeyCode: windows}))
	}
}

// write types text into whatever has the focus.
func (w *window) write(text string) {
	w.t.Helper()
	w.run(devtools(input.InsertText, input.InsertTextParams{Text: text}))
}

// listed says in JavaScript that a file is in the panel.
func listed(path string) string {
	return fmt.Sprintf(`(document.querySelector(%q)?.checkVisibility() ?? false)`, selector("file-"+path))
}

// focusFile focuses a file in the panel.
func (w *window) focusFile(path string) {
	w.t.Helper()
	w.run(chromedp.Focus(chromedp.CSS(selector("file-" + path))))
}

// drop drops a file that the page makes on an element.
func (w *window) drop(id, name, content string) {
	w.t.Helper()
	eval[any](w, fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		data.items.add(new File([%q], %q));
		for (const type of ['dragenter', 'dragover', 'drop']) {
			document.querySelector(%q).dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
		}
		return null;
	})()`, content, name, selector(id)))
}

// slowUploads has the browser send no more bytes a second, −1: as many as it can.
func (w *window) slowUploads(bytes float64) {
	w.t.Helper()
	w.run(devtools(network.Enable, network.EnableParams{}), devtools(network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{DownloadThroughput: -1, UploadThroughput: bytes}},
	}))
}

// TestFilesInTheBrowser: what a terminal makes appears by itself; files are
// dropped, renamed, downloaded and deleted; who only watches has no panel.
func TestFilesInTheBrowser(t *testing.T) {
	s := own(t)
	link := func(name string) string { return s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token }
	alice := openWindow(t, "files", link("alice"), 1440, 900)
	alice.untilText("controller", "You have control")
	alice.typeLine("mkdir -p src && echo one > src/first.txt && echo made-$((6*7))")
	alice.untilScreen("\nmade-42")

	alice.click("btn-files")
	alice.until(listed("/src"))
	alice.click("file-/src")
	alice.until(listed("/src/first.txt"))
	alice.typeLine("echo by-a-terminal > src/second.txt")
	alice.until(listed("/src/second.txt"))
	alice.untilText("file-/src/second.txt", "14 B")

	// Into the folder that it is dropped on.
	alice.drop("file-/src", "dropped.txt", "brought by hand\n")
	alice.until(listed("/src/dropped.txt"))
	alice.untilText("upload-progress", "Uploaded")
	alice.typeLine("cat src/dropped.txt")
	alice.untilScreen("\nbrought by hand")
	alice.shoot("uploaded")

	// A large one goes by the resumable route, whatever becomes of the relay.
	alice.slowUploads(2 << 20) // or it might be there before the relay dies
	large := strings.Repeat("0123456789abcdef", 1<<16)
	eval[any](alice, fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		data.items.add(new File(Array(24).fill(%q), 'large.bin'));
		document.querySelector(%q).dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
		return null;
	})()`, large, selector("file-/src")))
	alice.until(fmt.Sprintf(`document.querySelector('%s progress')?.value > 100`, selector("upload-progress")))
	alice.until("!" + listed("/src/large.bin"))
	killRelay(t, s)
	alice.slowUploads(-1)
	alice.until(listed("/src/large.bin"))
	alice.untilText("files", "Uploaded large.bin")
	remote := newRemote(t, s, "alice")
	if got := remote.want(http.StatusOK, http.MethodGet, "/file"+at("/src/large.bin"), nil); string(got) != strings.Repeat(large, 24) {
		t.Errorf("%d bytes, others than those that were dropped", len(got))
	}

	alice.focusFile("/src/dropped.txt")
	alice.press("F2", 113)
	alice.until(`document.activeElement.matches('[data-testid=files-name]')`)
	alice.write("renamed")
	alice.click("files-name-ok")
	alice.until(listed("/src/renamed.txt") + " && !" + listed("/src/dropped.txt"))

	// What would go to the disk is kept by the page.
	eval[any](alice, `(() => {
		window.saved = {};
		const blobs = new Map();
		const make = URL.createObjectURL.bind(URL);
		URL.createObjectURL = (blob) => { const url = make(blob); blobs.set(url, blob); return url };
		HTMLAnchorElement.prototype.click = function () { blobs.get(this.href)?.text().then((text) => { window.saved[this.download] = text }) };
		return null;
	})()`)
	alice.focusFile("/src/renamed.txt")
	alice.click("btn-download-/src/renamed.txt")
	alice.until(`window.saved['renamed.txt'] === 'brought by hand\n'`)

	alice.focusFile("/src/renamed.txt")
	alice.click("btn-delete-/src/renamed.txt")
	alice.until(`document.querySelector('#ask').open`)
	alice.run(chromedp.Click(chromedp.CSS(`#ask-yes`), chromedp.NodeVisible))
	alice.until("!" + listed("/src/renamed.txt"))
	alice.typeLine("ls src/renamed.txt; echo looked-$((1+1))")
	alice.untilScreen("\nlooked-2")
	alice.untilScreen("No such file")
	alice.shoot("deleted")

	carol := openWindow(t, "nofiles", link("carol"), 1440, 900)
	carol.untilText("controller", "alice has control")
	carol.until(`!document.querySelector('[data-testid=btn-files]').checkVisibility() && !document.querySelector('[data-testid=files]').checkVisibility()`)
}
