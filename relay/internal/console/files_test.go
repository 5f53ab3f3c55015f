package console_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// row says in JavaScript that a file is listed.
func row(path string) string {
	return fmt.Sprintf(`(document.querySelector(%q)?.checkVisibility() ?? false)`, testid("file-"+path))
}

// untilFile waits until the sandbox has a file of that content.
func (f *fakeRelay) untilFile(t testing.TB, path, content string) {
	t.Helper()
	f.until(t, path, func() bool {
		file := f.files.files[path]
		return file != nil && string(file.content) == content
	})
}

// dropFiles drops files that the page makes, of one name and content each, on
// an element.
func (b *tab) dropFiles(id string, files ...string) {
	b.Helper()
	var add strings.Builder
	for i := 0; i+1 < len(files); i += 2 {
		fmt.Fprintf(&add, "data.items.add(new File([%s], %s));", quoted(files[i+1]), quoted(files[i]))
	}
	b.eval(fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		%s
		for (const type of ['dragover', 'drop']) {
			document.querySelector(%q).dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
		}
	})()`, add.String(), testid(id)))
}

// catchDownloads has the page keep what it would save: names and contents.
const catchDownloads = `(() => {
	delete window.showSaveFilePicker;
	window.saved = {};
	const blobs = new Map();
	const make = URL.createObjectURL.bind(URL);
	URL.createObjectURL = (blob) => { const url = make(blob); blobs.set(url, blob); return url };
	HTMLAnchorElement.prototype.click = function () { blobs.get(this.href)?.text().then((text) => { window.saved[this.download] = text }) };
})()`

// openFiles shows alice the panel of a workspace with two files.
func openFiles(t *testing.T, browser context.Context) (*fakeRelay, *tab) {
	t.Helper()
	relay := newFakeRelay(t)
	relay.put("/src/main.go", "package main\n")
	relay.put("/notes.txt", "one\n")
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.eval(catchDownloads)
	alice.click("btn-files")
	alice.until(row("/src") + " && " + row("/notes.txt") + " && !" + row("/src/main.go"))
	relay.until(t, "the page watches", func() bool { return len(relay.files.watchers) == 1 })
	return relay, alice
}

// What a terminal makes appears where it is; the keyboard goes everywhere.
func testFileTree(t *testing.T, browser context.Context) {
	relay, alice := openFiles(t, browser)
	at := func(path string) {
		t.Helper()
		alice.until(fmt.Sprintf(`document.activeElement.dataset.path === %q`, path))
	}
	at("/src") // the first one
	alice.typing(kb.ArrowRight)
	alice.until(row("/src/main.go"))
	relay.put("/src/made.log", "by a terminal\n")
	alice.until(row("/src/made.log"))
	alice.untilText("file-/notes.txt", "4 B")
	alice.typing(kb.ArrowDown + kb.ArrowDown + kb.ArrowUp)
	at("/src/made.log")
	relay.put("/src/a.first", "")
	alice.until(row("/src/a.first"))
	at("/src/made.log")
	alice.typing(kb.End)
	at("/notes.txt")
	alice.typing("mai")
	at("/src/main.go")
	alice.typing(kb.ArrowLeft)
	at("/src")
	alice.typing(kb.ArrowLeft)
	alice.until("!" + row("/src/main.go"))
	alice.typing("*")
	alice.until(`!` + row("/notes.txt") + ` && ` + row("/src/main.go") + ` && document.querySelector('#files-path').innerText === '/src'`)
	alice.click("btn-up")
	alice.until(row("/notes.txt"))
	at("/src")
	alice.typing(kb.Escape)
	alice.until(`document.activeElement.matches('.xterm-helper-textarea') && document.querySelector('[data-testid=files]').hidden`)
	relay.until(t, "nobody watches", func() bool { return len(relay.files.watchers) == 0 })
	alice.check()
	relay.check(t)
}

// Files come in and out, and are replaced after a question.
func testFileTransfers(t *testing.T, browser context.Context) {
	relay, alice := openFiles(t, browser)
	alice.dropFiles("files-drop", "new.txt", "brought")
	relay.untilFile(t, "/new.txt", "brought")
	alice.until(row("/new.txt"))
	alice.dropFiles("files-drop", "notes.txt", "two\n")
	alice.until(`document.querySelector('#ask').open && document.querySelector('#ask').innerText.includes('notes.txt')`)
	alice.eval(`document.querySelector('#ask-no').click()`)
	alice.untilText("files", "Nothing was replaced")
	alice.dropFiles("file-/src", "notes.txt", "elsewhere\n")
	relay.untilFile(t, "/src/notes.txt", "elsewhere\n")
	alice.dropFiles("files-drop", "notes.txt", "two\n", "more.txt", "m")
	alice.until(`document.querySelector('#ask').open`)
	alice.eval(`document.querySelector('#ask-yes').click()`)
	relay.untilFile(t, "/notes.txt", "two\n")
	relay.untilFile(t, "/more.txt", "m")
	alice.until(row("/src/notes.txt")) // where it went is opened

	alice.eval(`document.querySelector('[data-testid="btn-download-/notes.txt"]').click()`)
	alice.until(`window.saved['notes.txt'] === 'two\n'`)
	alice.eval(`document.querySelector('[data-testid="btn-download-/src"]').click()`)
	alice.until(`window.saved['src.tar.gz']?.length > 20`)
	alice.check()
	relay.check(t)
}

// Files get other names and places, and are deleted after a question.
func testFileNames(t *testing.T, browser context.Context) {
	relay, alice := openFiles(t, browser)
	relay.put("/more.txt", "m")
	alice.until(row("/more.txt"))
	alice.run(focus("file-/more.txt"))
	alice.typing(kb.F2)
	alice.until(`document.activeElement.matches('[data-testid=files-name]') && document.activeElement.selectionEnd === 'more'.length`)
	alice.typing("notes\r")
	alice.untilText("files", "Not possible: there is something of that name already")
	alice.typing("!\r")
	relay.untilFile(t, "/notes!.txt", "m")
	alice.until(row("/notes!.txt") + " && !" + row("/more.txt"))
	alice.click("btn-new-folder")
	alice.typing("a/b\r")
	alice.untilText("files", "can’t hold a slash")
	alice.eval(`document.querySelector('[data-testid=files-name]').select()`)
	alice.typing("old\r")
	alice.until(row("/old"))
	alice.eval(`(() => {
		const data = new DataTransfer();
		const fire = (id, type) => document.querySelector('[data-testid="' + id + '"]').dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
		fire('file-/notes!.txt', 'dragstart');
		fire('file-/old', 'dragover');
		fire('file-/old', 'drop');
	})()`)
	relay.untilFile(t, "/old/notes!.txt", "m")
	alice.until("!" + row("/notes!.txt"))

	alice.run(focus("file-/old"))
	alice.typing(kb.Delete)
	alice.until(`document.querySelector('#ask').open && document.querySelector('#ask').innerText.includes('With everything in it')`)
	alice.eval(`document.querySelector('#ask-yes').click()`)
	alice.until("!" + row("/old"))
	alice.until(`document.activeElement.matches('.file')`)
	alice.check()
	relay.check(t)
}

// A name is text, and shows what is in it; who may only look changes nothing,
// and who may not even that has no panel.
func testFileRights(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	const bad = "/<img src=x onerror=alert(1)>\u202egpj.exe\n"
	relay.put(bad, "x")
	bob, carol := newTab(t, browser), newTab(t, browser)
	bob.open(relay.link("bob"))
	bob.untilText("controller", "control")
	bob.click("btn-files")
	bob.untilText("files", "<img src=x onerror=alert(1)>⟨U+202E⟩gpj.exe⟨U+000A⟩")
	if there := eval[bool](bob, `document.querySelector('#files img, [data-testid^=btn-delete], [data-testid^=btn-rename], .file[draggable]') !== null || document.querySelector('[data-testid=btn-upload]').checkVisibility() || document.querySelector('[data-testid=btn-new-folder]').checkVisibility()`); there {
		t.Error("there is a button, or an element, that shouldn't be there")
	}
	bob.dropFiles("files-drop", "x", "y")
	bob.typing(kb.Delete)
	carol.open(relay.link("carol"))
	carol.untilText("controller", "control")
	carol.until(hidden("btn-files") + " && " + hidden("files"))
	bob.check()
	carol.check()
	relay.check(t)
}

// A large upload goes on behind a connection that breaks; changes that were
// missed are made up for; a full disk is told in words.
func testFileOutages(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.put("/first", "1")
	alice := newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.click("btn-files")
	alice.until(row("/first"))
	relay.until(t, "the page watches", func() bool { return len(relay.files.watchers) == 1 })

	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	for name, data := range map[string][]byte{"folder/large.bin": content, "folder/deep/small": []byte("small"), "folder/empty/.keep": nil} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	relay.mu.Lock()
	relay.files.breakAt = 5 << 20
	relay.mu.Unlock()
	at := eval[[]float64](alice, `(({left, top, width, height}) => [left + width / 2, top + height - 20])(document.querySelector('[data-testid=files-drop]').getBoundingClientRect())`)
	data := &input.DragData{Items: []*input.DragDataItem{}, Files: []string{filepath.Join(dir, "folder")}, DragOperationsMask: 1}
	for _, kind := range []input.DispatchDragEventType{"dragEnter", "dragOver", "drop"} {
		alice.run(command(input.DispatchDragEvent, input.DispatchDragEventParams{Type: kind, X: at[0], Y: at[1], Data: data}))
	}
	alice.until(`document.querySelector('[data-testid=upload-progress]')`)
	relay.until(t, "the folder is there", func() bool {
		large, small := relay.files.files["/folder/large.bin"], relay.files.files["/folder/deep/small"]
		return large != nil && bytes.Equal(large.content, content) && small != nil && relay.files.files["/folder/empty/.keep"] != nil
	})
	relay.mu.Lock()
	if relay.files.breakAt != 0 || relay.files.patches < 5 {
		t.Errorf("%d requests brought it; the connection did not break", relay.files.patches)
	}
	relay.mu.Unlock()
	alice.untilText("files", "Uploaded 3 files")

	// The watch is lost together with a change.
	relay.mu.Lock()
	watchers := relay.files.watchers
	relay.files.watchers = make(map[chan string]struct{})
	relay.writeFile("/missed", []byte("m"))
	for w := range watchers {
		w <- ""
	}
	relay.mu.Unlock()
	alice.until(row("/missed"))

	relay.mu.Lock()
	relay.files.full = true
	relay.mu.Unlock()
	alice.dropFiles("files-drop", "one", "1")
	alice.untilText("upload-progress", "disk is full")
	if eval[bool](alice, row("/one")) {
		t.Error("it shows what is not there")
	}
	alice.run(chromedp.Click(chromedp.CSS(testid("btn-upload-cancel")), chromedp.NodeVisible))
	alice.check()
	relay.check(t)
}

// shotsOfFiles takes pictures of the panel.
func shotsOfFiles(t *testing.T, browser context.Context, prefix string, prepare ...step) {
	relay := newFakeRelay(t)
	for path, content := range map[string]string{
		"/.gitignore": "bin\n", "/README.md": strings.Repeat("words ", 800), "/go.mod": "module x\n", "/notes 10.txt": "", "/notes 9.txt": "9",
		"/src/main.go": strings.Repeat("x", 3_000_000), "/src/a-rather-long-name-of-a-file-that-somebody-has-made.test.golden.json": "{}",
		"/src/relay/hub/hub.go": "package hub", "/docs/a.md": "a", "/bad\u202egpj.exe": "x", "/vendor/x/y": "",
	} {
		relay.put(path, content)
	}
	relay.mu.Lock()
	relay.files.files["/current"] = &fakeFile{target: "src/main.go", at: time.Now().Add(-26 * time.Hour)}
	relay.files.files["/go.mod"].at = time.Now().Add(-90 * 24 * time.Hour)
	relay.mu.Unlock()
	pty := relay.pty("pty_1")
	relay.output(pty, strings.Repeat(demo, 3))
	alice := newTab(t, browser, prepare...)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.eval(`document.querySelector('[data-testid=btn-files]').click()`)
	alice.until(row("/src"))
	alice.eval(`document.querySelector('[data-testid="file-/src"]').click()`)
	alice.until(row("/src/relay"))
	alice.eval(`document.querySelector('[data-testid="file-/src/relay"]').click()`)
	alice.until(row("/src/relay/hub"))
	alice.run(focus("file-/src/main.go"))
	alice.until(`document.getAnimations().length === 0`)
	alice.shot(prefix + "-12-files.png")
	relay.mu.Lock()
	relay.files.full = true
	relay.mu.Unlock()
	alice.dropFiles("file-/src", "report.pdf", "x")
	alice.untilText("upload-progress", "disk is full")
	alice.eval(`document.querySelector('[data-testid="btn-rename-/src/main.go"]').click()`)
	alice.until(`document.activeElement.matches('[data-testid=files-name]')`)
	relay.mu.Lock()
	relay.down[relay.host()], relay.down[relay.other.Listener.Addr().String()] = true, true
	relay.mu.Unlock()
	alice.dropFiles("file-/src", "video.mp4", strings.Repeat("v", 100_000), "another.mp4", strings.Repeat("v", 300_000))
	alice.until(`document.querySelectorAll('[data-testid=upload-progress]').length === 2`)
	alice.until(`document.querySelector('#files-transfers').innerText.includes('Waiting for a connection')`)
	alice.shot(prefix + "-13-files-busy.png")
	alice.check()
	relay.check(t)
}
