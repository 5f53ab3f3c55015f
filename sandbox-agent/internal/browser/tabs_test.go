package browser

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// alone has the shared world's Chromium have one tab, and returns it.
func (w *world) alone(t *testing.T) int {
	t.Helper()
	if err := w.Stop(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	var list tabList
	w.text(t, "browser_start")
	w.json(t, &list, "browser_tabs")
	if len(list.Tabs) != 1 || !list.Tabs[0].Active {
		t.Fatalf("%+v", list)
	}
	return list.Tabs[0].ID
}

// refusals returns how many there were for reasons.
func (w *world) refusals(reasons ...string) (n float64) {
	for _, reason := range reasons {
		n += testutil.ToFloat64(w.opts.Metrics.WithLabelValues(reason))
	}
	return n
}

// json calls a tool that must succeed, and decodes its text.
func (w *world) json(t *testing.T, into any, name string, pairs ...any) {
	t.Helper()
	if err := json.Unmarshal([]byte(w.text(t, name, pairs...)), into); err != nil {
		t.Fatal(err)
	}
}

// another opens a tab of the site.
func (w *world) another(t *testing.T, path string) int {
	t.Helper()
	var list tabList
	w.json(t, &list, "browser_tab_open", "url", w.site.URL+path)
	return list.Tab
}

// TestTabs: tabs are apart, the one that is named or active is meant, and numbers
// don't come back.
func TestTabs(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	w.visit(t, "/one")
	second := w.another(t, "/two")
	if first == second || w.text(t, "browser_get_title") != "/two" || w.text(t, "browser_get_title", "tab", first) != "/one" {
		t.Errorf("tabs %d and %d", first, second)
	}
	if got := w.text(t, "browser_tab_switch", "tab", first); !strings.Contains(got, `"title":"/one","active":true`) || !strings.Contains(got, `"title":"/two","active":false`) {
		t.Error(got)
	}
	status := w.Status(t.Context(), session)
	if len(status.Tabs) != 2 || status.Title != "/one" || status.Tabs[0] != (op.BrowserTab{ID: first, URL: w.site.URL + "/one", Title: "/one", Active: true}) {
		t.Errorf("%+v", status)
	}
	if answer, err := w.CDP(t.Context(), session, op.CDPSend{Method: "Runtime.evaluate", Params: []byte(`{"expression":"document.title"}`), Tab: second}); err != nil || !strings.Contains(string(answer), `"/two"`) {
		t.Errorf("%s %v", answer, err)
	}
	w.text(t, "browser_tab_close", "tab", second)
	for _, c := range [][]any{{"browser_get_title", "tab", second}, {"browser_tab_switch", "tab", second}, {"browser_tab_close", "tab", second}, {"browser_click", "tab", 4711, "selector", "body"}} {
		if _, err := w.call(c[0].(string), c[1:]...); protocol.KindOf(err) != protocol.KindNotFound {
			t.Errorf("%v: %v", c, err)
		}
	}
	if third := w.another(t, "/three"); third <= second {
		t.Errorf("tab %d came after %d", third, second)
	} else {
		w.text(t, "browser_tab_close", "tab", third)
	}
	if _, err := w.call("browser_tab_open", "url", "file:///etc/passwd"); protocol.KindOf(err) != protocol.KindInvalid {
		t.Error(err)
	}
	eventually(t, "one tab", func() bool { return w.pageTargets(t) == 1 })
}

// TestTabBound: over so many there are none, whoever asks, and each is counted.
func TestTabBound(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	w.visit(t, "/form")
	for range roster.Max - 1 {
		w.another(t, "/more")
	}
	before := w.refusals(refusedTab)
	if _, err := w.call("browser_tab_open"); protocol.KindOf(err) != protocol.KindTooMany || !strings.Contains(err.Error(), "8 tabs") {
		t.Errorf("%v", err)
	}
	if got := w.text(t, "browser_click", "tab", first, "selector", "#link"); got != "clicked" {
		t.Error(got)
	}
	eventually(t, "counted", func() bool { return w.refusals(refusedTab) == before+2 })
	for _, tab := range w.Tabs(t.Context(), session) {
		if tab.ID != first {
			w.text(t, "browser_tab_close", "tab", tab.ID)
		}
	}
	eventually(t, "one tab", func() bool { return w.pageTargets(t) == 1 })
}

// TestThousandWindows: a page that opens a thousand windows gets few, however they
// come, and the tabs that were there work on.
func TestThousandWindows(t *testing.T) {
	w := theWorld(t)
	other := w.alone(t)
	w.visit(t, "/other")
	before := w.refusals(refusedWindow, refusedTab)
	w.another(t, "/thousand")
	if got := w.text(t, "browser_click", "selector", "#windows"); !strings.HasPrefix(got, "clicked; that opened tab ") {
		t.Error(got)
	}
	w.evaluate(t, `for (let i = 0; i < 1000; i++) window.open("/evaluated" + i, "_blank"); 1`)
	w.evaluate(t, `setTimeout(() => { for (let i = 0; i < 1000; i++) window.open("/late" + i, "_blank", "width=100") }); 1`)
	eventually(t, "counted", func() bool { return w.refusals(refusedWindow, refusedTab) > before+100 })
	if n := w.pageTargets(t); n > roster.Max {
		t.Errorf("%d pages", n)
	}
	if got := w.text(t, "browser_get_title", "tab", other); got != "/other" {
		t.Error(got)
	}
	w.alone(t)
}

// TestStranger: a page that nobody here has opened is closed.
func TestStranger(t *testing.T) {
	w := theWorld(t)
	w.alone(t)
	c := w.chromium()
	for range 3 {
		if err := c.browser.Call(t.Context(), "Target.createTarget", map[string]any{"url": "about:blank", "newWindow": true}, nil); err != nil {
			t.Fatal(err)
		}
		w.another(t, "/mine")
	}
	eventually(t, "four tabs", func() bool { return w.pageTargets(t) == 4 && len(w.Tabs(t.Context(), session)) == 4 })
	w.alone(t)
}

// TestTabCrash: a tab that crashes is opened anew, and the others know nothing of
// it.
func TestTabCrash(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	w.visit(t, "/stays")
	second := w.another(t, "/goes")
	before, crashes := w.chromium(), w.page(t, second)
	var calls sync.WaitGroup
	calls.Go(func() {
		if _, err := w.call("browser_evaluate", "tab", second, "script", "new Promise(() => {})"); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Errorf("%v", err)
		}
	})
	eventually(t, "under way", func() bool { return len(crashes.turn) == 1 })
	crashes.later(func(ctx context.Context) { _ = crashes.target.Call(ctx, cdppage.Crash.Method, cdp.Empty{}, nil) })
	calls.Wait()
	if got := w.text(t, "browser_get_title", "tab", first); got != "/stays" {
		t.Error(got)
	}
	if got := w.text(t, "browser_get_url", "tab", second); got != blank {
		t.Error(got)
	}
	if w.chromium() != before {
		t.Error("the browser was started anew")
	}
	eventually(t, "two tabs", func() bool { return w.pageTargets(t) == 2 })
}

// TestTabHangs: while one page computes for ever others work, and it can be left
// and closed.
func TestTabHangs(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	w.visit(t, "/form")
	before := w.chromium()
	hang := func() int {
		tab := w.another(t, "/here")
		w.evaluate(t, `setTimeout(() => { for (;;); }); 1`)
		return tab
	}
	left, closed := hang(), hang()
	w.text(t, "browser_type", "tab", first, "selector", "#name", "text", "x")
	w.text(t, "browser_click", "tab", first, "selector", "#button")
	if got := w.text(t, "browser_get_title", "tab", first); got != "clicked true" {
		t.Error(got)
	}
	w.text(t, "browser_tab_close", "tab", closed)
	before.opts.leave = time.Second
	defer func() { before.opts.leave = patience }()
	w.text(t, "browser_navigate", "tab", left, "url", w.site.URL+"/away")
	if got := w.text(t, "browser_get_title", "tab", left); got != "/away" {
		t.Error(got)
	}
	eventually(t, "two tabs", func() bool { return w.pageTargets(t) == 2 })
	if w.chromium() != before {
		t.Error("the browser was started anew")
	}
}

// TestTabsAtOnce: what waits in one tab holds nobody up in another.
func TestTabsAtOnce(t *testing.T) {
	w := theWorld(t)
	w.alone(t)
	w.visit(t, "/form")
	second := w.another(t, "/form")
	held := w.page(t, second)
	done, err := held.act(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var calls sync.WaitGroup
	calls.Go(func() { // it gets its turn when the tab is closed: never
		if _, err := w.call("browser_scroll", "tab", second, "y", 10); protocol.KindOf(err) != protocol.KindNotFound {
			t.Errorf("%v", err)
		}
	})
	for _, tab := range w.Tabs(t.Context(), session) {
		if tab.ID != second {
			w.text(t, "browser_click", "tab", tab.ID, "selector", "#button")
			if _, err := w.call("browser_screenshot", "tab", tab.ID); err != nil {
				t.Error(err)
			}
		}
	}
	w.text(t, "browser_tab_close", "tab", second) // in the middle of a call
	calls.Wait()
}

// TestLastTab: with it the Chromium ends, and the next call has another tab in
// another one.
func TestLastTab(t *testing.T) {
	w := theWorld(t)
	last := w.alone(t)
	w.visit(t, "/dialogs") // it doesn't want to be left
	if got := w.text(t, "browser_tab_close"); got != `{"tab":`+jsonOf(last)+`,"tabs":[]}` {
		t.Error(got)
	}
	if status := w.Status(t.Context(), session); status.State != stateStopped {
		t.Errorf("%+v", status)
	}
	if next := w.alone(t); next <= last {
		t.Errorf("tab %d after %d", next, last)
	}
	if !w.TabClosed(session, last) || w.TabClosed(session, last+100) || w.TabClosed("ses_none", 1) {
		t.Error("which tabs are closed")
	}
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestBoundTab: who is bound to a tab has it without naming it, also the first
// time, whatever is active, and after another Chromium.
func TestBoundTab(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	bound := first + 5
	as := func(tab int, name string, args string) (string, error) {
		caller := toolbox.Caller{Session: session, PTY: "pty_1", Tab: tab}
		for _, tool := range w.Tools(caller) {
			if tool.Name == name {
				result, err := tool.Call(t.Context(), caller, json.RawMessage(args))
				if err != nil {
					return "", err
				}
				return result.Content[0].Text, nil
			}
		}
		t.Fatal(name)
		return "", nil
	}
	for range 2 {
		if _, err := as(bound, "browser_navigate", `{"url":"`+w.site.URL+`/bound"}`); err != nil {
			t.Fatal(err)
		}
		w.text(t, "browser_navigate", "tab", first, "url", w.site.URL+"/first")
		if got, err := as(bound, "browser_get_title", `{}`); got != "/bound" || err != nil {
			t.Errorf("%s %v", got, err)
		}
		if got, err := as(bound, "browser_get_title", `{"tab":`+jsonOf(first)+`}`); got != "/first" || err != nil {
			t.Errorf("%s %v", got, err)
		}
		if err := w.Stop(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	got, err := as(bound, "browser_tab_open", `{}`)
	if err != nil || strings.Contains(got, `"id":`+jsonOf(bound+1)+`,"url":"about:blank","title":"","active":true`) {
		t.Errorf("%s %v", got, err)
	}
	if _, err := as(bound, "browser_tab_close", `{}`); err != nil {
		t.Fatal(err)
	}
	if _, err := as(bound, "browser_get_title", `{}`); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("%v", err)
	}
}

// TestTabGuard: what holds for a page holds for those that are opened, from their
// first request on.
func TestTabGuard(t *testing.T) {
	w := theWorld(t)
	w.alone(t)
	if _, err := w.call("browser_tab_open", "url", w.closed.URL+"/opened"); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("%v", err)
	}
	w.visit(t, "/here")
	w.evaluate(t, `{ const a = document.createElement("a"); a.href = "`+w.closed.URL+`/linked"; a.target = "_blank"; a.id = "a"; a.textContent = "away"; document.body.append(a); 1 }`)
	w.text(t, "browser_click", "selector", "#a")
	eventually(t, "opened", func() bool { return strings.HasPrefix(w.text(t, "browser_get_url"), w.closed.URL) })
	for _, address := range []string{"file:///etc/passwd", "chrome://version", "devtools://devtools/x", "view-source:http://example.com", "javascript:alert(1)", "data:text/html,x"} {
		w.evaluate(t, `window.open("`+address+`", "_blank"); 1`)
	}
	tab := w.another(t, "/form")
	w.text(t, "browser_evaluate", "tab", tab, "script", `{ const a = document.createElement("a"); a.href = "/download"; a.download = "loot.bin"; document.body.append(a); a.click(); alert(1); 1 }`)
	if status := w.Status(t.Context(), session); len(status.Tabs) != 4 {
		t.Errorf("%+v", status.Tabs)
	}
	if hits := w.asked(); len(hits) > 0 {
		t.Errorf("the agent was asked for %v", hits)
	}
	w.alone(t)
}

// TestTabFrames: who watches a tab sees that one, and who watches no special one
// whichever is active.
func TestTabFrames(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	w.visit(t, "/moving")
	second := w.another(t, "/moving")
	for _, tab := range []int{first, second, 0} {
		frames, err := w.Frames(t.Context(), session, tab)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // of which none stands still
			select {
			case f := <-frames:
				if http.DetectContentType(f.JPEG) != "image/jpeg" {
					t.Errorf("%.20q", f.JPEG)
				}
			case <-time.After(patience):
				t.Fatalf("no frame of tab %d in %s", tab, patience)
			}
		}
	}
	w.alone(t)
}

// told notes which sessions' tabs have changed.
type told chan protocol.SessionID

func (c told) TabsChanged(session protocol.SessionID) {
	select {
	case c <- session:
	default:
	}
}

// TestObserver: whoever observes is told of each change.
func TestObserver(t *testing.T) {
	w := theWorld(t)
	first := w.alone(t)
	heard := make(told, 100)
	w.Observe(heard)
	defer w.Observe(nil)
	for _, do := range []func(){
		func() { w.another(t, "/here") },
		func() { w.text(t, "browser_tab_switch", "tab", first) },
		func() { w.text(t, "browser_tab_close", "tab", first) },
		func() { _ = w.Stop(t.Context(), session) },
	} {
		for len(heard) > 0 {
			<-heard
		}
		do()
		select {
		case of := <-heard:
			if of != session {
				t.Error(of)
			}
		case <-time.After(patience):
			t.Fatal("nothing is told")
		}
	}
}

// TestRefusals: tabs that open pages at once each learn why theirs was refused.
func TestRefusals(t *testing.T) {
	g, _ := through(t, Options{Ports: all})
	for i := range guardRefusals + 10 {
		mark := g.mark()
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://"+strings.Repeat("x", i+1)+".example/", nil)
		g.refuse(w, r, protocol.Errorf(protocol.KindForbidden, "number %d", i))
		g.refuse(w, httptest.NewRequest(http.MethodGet, "http://other.example/", nil), protocol.Errorf(protocol.KindForbidden, "other"))
		if err := g.refusalOf(r.URL, mark); err == nil || err.Error() != "number "+jsonOf(i) {
			t.Errorf("%v", err)
		}
		if err := g.refusalOf(r.URL, g.mark()); err != nil {
			t.Errorf("an old one: %v", err)
		}
	}
	if len(g.refused) != guardRefusals {
		t.Errorf("%d are remembered", len(g.refused))
	}
}
