package browser

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/runtime"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// TestURLs: tools open the web and nothing else.
func TestURLs(t *testing.T) {
	w := theWorld(t)
	for _, address := range []string{
		"file:///etc/passwd", "FILE:///etc/passwd", "chrome://version", "view-source:http://example.com", "javascript:alert(1)",
		"data:text/html,x", "about:config", "devtools://devtools/x", "ftp://example.com/", "//example.com", "", "http://", "http:x",
		" file:///etc/passwd", "http\n://x", "blob:http://x/y", "chrome-extension://x/y", "about:srcdoc",
	} {
		if _, err := w.call("browser_navigate", "url", address); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%q: %v", address, err)
		}
	}
	w.visit(t, "/here")
	for _, script := range []string{
		`location = "file:///etc/passwd"; 1`, `location = "chrome://version"; 1`, `location = "view-source:" + location; 1`,
		`document.body.innerHTML = '<iframe src="file:///etc/passwd">'; 1`, `window.open("file:///etc/passwd"); 1`,
	} {
		w.evaluate(t, script)
	}
	if got := w.evaluate(t, `fetch("file:///etc/passwd").then(() => "read", () => "refused")`); got != `"refused"` {
		t.Error(got)
	}
	if got := w.text(t, "browser_get_url"); got != w.site.URL+"/here" {
		t.Error(got)
	}
	w.text(t, "browser_navigate", "url", "about:blank")
}

// TestForbiddenPorts: no page reaches the agent's own ports, by whatever name of
// this machine and by whatever way, nor does it learn that one is there.
func TestForbiddenPorts(t *testing.T) {
	w := theWorld(t)
	port := strconv.Itoa(portOf(w.closed.URL))
	guard := func() string { return strconv.Itoa(w.chromium().guard.port()) }
	w.visit(t, "/here")
	for _, host := range []string{"127.0.0.1", "localhost", "a.localhost", "127.1", "0x7f.0.0.1", "0.0.0.0", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "[::]"} {
		for _, port := range []string{port, guard()} {
			if _, err := w.call("browser_navigate", "url", "http://"+host+":"+port+"/direct"); err == nil {
				if got := w.text(t, "browser_get_content"); strings.Contains(got, "own") {
					t.Errorf("%s:%s: %s", host, port, got)
				}
			}
		}
	}
	w.visit(t, "/here")
	target := "127.0.0.1:" + port
	for _, script := range []string{
		`fetch("http://%s/fetch", {mode: "no-cors"}).then((r) => r.type, () => "failed")`,
		`fetch("http://%s/fetch").then((r) => r.text(), () => "failed")`,
		`fetch("/redirect?to=http://%s/redirected").then((r) => r.text(), () => "failed")`,
		`new Promise((done) => { const s = new WebSocket("ws://%s/socket"); s.onopen = () => done("open"); s.onerror = () => done("failed") })`,
		`new Promise((done) => { const s = new EventSource("http://%s/events"); s.onopen = () => done("open"); s.onerror = () => done("failed") })`,
		`new Promise((done) => { const i = new Image(); i.onload = () => done("loaded"); i.onerror = () => done("failed"); i.src = "http://%s/image" })`,
		`new Promise((done) => { const w = new Worker(URL.createObjectURL(new Blob(["fetch('http://%s/worker').then((r) => r.text()).then(postMessage, () => postMessage('failed'))"]))); w.onmessage = (e) => done(e.data) })`,
		`new Promise((done) => { const f = document.createElement("iframe"); f.onload = () => setTimeout(done, 50, "ok"); f.src = "http://%s/frame"; document.body.append(f) })`,
		`navigator.sendBeacon("http://%s/beacon", "x") && "sent"`,
		`{ const l = document.createElement("link"); l.rel = "preconnect"; l.href = "http://%s/"; document.head.append(l); "ok" }`,
	} {
		switch got := w.evaluate(t, fmt.Sprintf(script, target)); got {
		case `"failed"`, `"opaque"`, `"sent"`, `"ok"`: // opaque: the guard's answer, not to be read
		default:
			t.Errorf("%s: %s", script, got)
		}
	}
	if _, err := w.call("browser_navigate", "url", w.site.URL+"/redirect?to=http://"+target+"/away"); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("%v", err)
	}
	if hits := w.asked(); len(hits) > 0 {
		t.Errorf("the agent was asked for %v", hits)
	}
}

// TestDatagrams: WebRTC sends nothing past the guard.
func TestDatagrams(t *testing.T) {
	w := theWorld(t)
	conn := listenUDP(t)
	w.visit(t, "/here")
	candidates := w.evaluate(t, fmt.Sprintf(`new Promise(async (done) => {
		const found = [], p = new RTCPeerConnection({iceServers: [{urls: "stun:%s"}, {urls: "turn:%[1]s", username: "u", credential: "c"}]});
		p.onicecandidate = (e) => e.candidate ? found.push(e.candidate.candidate) : done(found.join());
		p.createDataChannel("x"); await p.setLocalDescription(await p.createOffer());
		setTimeout(() => done(found.join()), 1000);
	})`, conn.LocalAddr()))
	if strings.Contains(candidates, "typ host") || strings.Contains(candidates, "srflx") {
		t.Error(candidates)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool { // what is there by now
		if n, from, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT); err == nil {
			t.Errorf("a datagram of %d bytes came from %v", n, from)
		}
		return true
	}); err != nil {
		t.Error(err)
	}
}

// TestDownload: nothing is downloaded.
func TestDownload(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/here")
	if _, err := w.call("browser_navigate", "url", w.site.URL+"/download"); err == nil {
		t.Error("a download was a page")
	}
	w.evaluate(t, `{ const a = document.createElement("a"); a.href = "/download"; a.download = "loot.bin"; document.body.append(a); a.click(); 1 }`)
	w.evaluate(t, `new Promise((done) => setTimeout(done, 200, 1))`)
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && (strings.Contains(path, "loot") || strings.HasSuffix(path, ".crdownload")) {
			t.Error(path)
		}
		return nil // what goes away meanwhile isn't there
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPopups: a page opens no window by itself; what a click opens is a tab.
func TestPopups(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/popups")
	if got := w.text(t, "browser_get_url"); got != w.site.URL+"/popups" {
		t.Errorf("it went to %s by itself", got)
	}
	w.visit(t, "/form")
	w.text(t, "browser_click", "selector", "#link")
	eventually(t, "at the link", func() bool { return w.text(t, "browser_get_url") == w.site.URL+"/linked" })
	eventually(t, "two tabs", func() bool { return w.pageTargets(t) == 2 })
	w.text(t, "browser_tab_close")
	if got := w.text(t, "browser_get_url"); got != w.site.URL+"/form" {
		t.Errorf("it is at %s", got)
	}
	eventually(t, "one tab", func() bool { return w.pageTargets(t) == 1 })
}

// TestDialogs: nobody has to answer dialogs, and none keeps the tab.
func TestDialogs(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/dialogs")
	if got := w.text(t, "browser_get_title"); got != "null" {
		t.Error(got)
	}
	if got := w.evaluate(t, `[alert(1), confirm(2), prompt(3)]`); got != `[null,false,null]` {
		t.Error(got)
	}
	w.evaluate(t, `onbeforeunload = (e) => { e.preventDefault(); return "stay" }; 1`)
	w.visit(t, "/here")
}

// TestHuge: what is large is cut off or refused, and the browser stays.
func TestHuge(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/huge")
	before := w.chromium()
	for _, tool := range []string{"browser_get_content", "browser_get_html"} {
		if got := w.text(t, tool); len(got) > maxText || !strings.HasSuffix(got, "characters]") {
			t.Errorf("%s: %d bytes", tool, len(got))
		}
	}
	if got := w.evaluate(t, `"x".repeat(1 << 20)`); len(got) > maxText || !strings.HasSuffix(got, "characters]") {
		t.Errorf("%d bytes", len(got))
	}
	if _, err := w.call("browser_evaluate", "script", `"x".repeat(17 << 20)`); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("%v", err)
	}
	w.evaluate(t, `document.title = "t".repeat(1 << 20); history.replaceState(0, "", "#" + "u".repeat(100000)); 1`)
	if status := w.Status(t.Context(), session); len(status.URL) > maxURL || len(status.Title) > maxTitle || status.State != stateRunning {
		t.Errorf("%s, %d bytes of URL, %d of title", status.State, len(status.URL), len(status.Title))
	}
	if w.chromium() != before {
		t.Error("the browser was started anew")
	}
}

// TestNoise: a page that never stops to cause events keeps nobody from leaving.
func TestNoise(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/noise")
	if got := w.evaluate(t, "1+1"); got != "2" {
		t.Error(got)
	}
	w.visit(t, "/here")
}

// TestLoop: a page that computes for ever can be left.
func TestLoop(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/loop")
	hung := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		p := w.page(t, 0)
		_, err := cdp.Call(ctx, p.target, runtime.Evaluate, runtime.EvaluateParams{Expression: "0"})
		return err != nil
	}
	eventually(t, "hung", hung)
	opts := w.chromium().opts
	opts.leave = time.Second
	defer func() { opts.leave = patience }()
	began := time.Now()
	w.visit(t, "/here")
	if took := time.Since(began); took > patience {
		t.Errorf("leaving took %v", took)
	}
}
