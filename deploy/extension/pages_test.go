package extension_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The five smoke cases of seed 003, as far as the extension takes part: it accepts or
// refuses by name, runs what was signed and no other thing, and tells what came of it.
func TestPages(t *testing.T) {
	r := newRig(t, nil)
	about := r.describe("ses_1")
	if !about.OK || !strings.HasPrefix(about.Data.BrowserID, "br_") || len(about.Data.BrowserID) != 29 || about.Data.Tabs != "shared" || about.Data.Version != "1.0.0" {
		t.Fatalf("described as %+v", about)
	}
	shop, tab := r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")

	// It runs, once, and the outcome has the form of the seed.
	p := r.payload(tab, "window.list.push('a'), 1+1")
	id := r.accepted(p)
	got := r.outcome(t, id, 1)
	if got.Status != "ok" || got.TraceID != p["traceId"] || got.Result.Kind != "cdp.send" || got.Result.TabID != tab || got.Result.Method != "Runtime.evaluate" ||
		got.bearer != "Bearer "+p["reply"].(object)["callbackToken"].(string) || got.Telemetry.Attempt != 1 || !strings.Contains(string(got.Result.Response), `"value":2`) {
		t.Errorf("told was %s with %q", got.body, got.bearer)
	}
	// Also by the browser's own id.
	if got := r.outcome(t, r.accepted(with(r.payload(tab, "3"), object{"target.browserId": about.Data.BrowserID})), 1); got.Status != "ok" {
		t.Errorf("told was %s", got.body)
	}
	// Again: the first answer, and nothing runs.
	r.accepted(p)
	// The seed's own form names no session: for managed machines alone.
	r.refused("TargetError", "names no session", r.message(with(p, object{"commandId": "cmd_seed", "target": object{"tabId": tab}})))

	t.Run("refused", func(t *testing.T) { r.refusals(t, tab) })
	t.Run("told", func(t *testing.T) { r.failures(t, tab) })
	t.Run("strangers", func(t *testing.T) { r.strangers(t) })
	if list := eval[string](shop, `window.list.join()`); list != "a" {
		t.Errorf("what ran in the tab: %q", list)
	}
	if n := len(r.of(id)); n != 1 {
		t.Errorf("%d callbacks of one command", n)
	}
}

// refused sends a message that must be refused by name.
func (r *rig) refused(name, says string, message object) {
	r.Helper()
	a := r.say(r.console, message)
	if a.OK || a.Error.Name != name || !strings.Contains(a.Error.Message, says) {
		r.Errorf("%+v, want %s: %s", a, name, says)
	}
}

// refusals are answered before anything is done.
func (r *rig) refusals(t *testing.T, tab int) {
	fresh := func(changes object) object {
		return with(r.payload(tab, "window.list.push('wrong')"), changes)
	}
	navigate := func(url string) object {
		return fresh(object{"op": object{"kind": "cdp.send", "method": "Page.navigate", "params": object{"url": url}}})
	}
	reply := func(url string) object { return r.message(fresh(object{"reply.url": url})) }
	host := strings.TrimPrefix(r.relay.URL, "http://")
	stolen := r.message(fresh(nil))
	parts := strings.Split(stolen["jws"].(string), ".")
	payload, _ := b64.DecodeString(parts[1])
	changed := with(stolen, object{"jws": parts[0] + "." + b64.EncodeToString([]byte(strings.Replace(string(payload), "wrong", "WRONG", 1))) + "." + parts[2]})
	none := with(stolen, object{"jws": b64.EncodeToString([]byte(`{"alg":"none","kid":"k1"}`)) + "." + parts[1] + "."})
	twoKids := with(stolen, object{"jws": b64.EncodeToString([]byte(`{"alg":"ES256","kid":"k2","kid":"k1"}`)) + "." + parts[1] + "." + parts[2]})
	for _, c := range []struct {
		name, says string
		message    object
	}{
		{"AuthError", "wrong signature", changed},
		{"AuthError", "not a compact JWS", none},
		{"AuthError", "distinct", twoKids},
		{"AuthError", "larger than", with(stolen, object{"jws": strings.Repeat("a", 64<<10+1)})},
		{"AuthError", "not a compact JWS", with(stolen, object{"jws": stolen["jws"].(string) + "\n"})},
		{"AuthError", "another command", with(stolen, object{"commandId": "cmd_other"})},
		{"AuthError", "another command", with(stolen, object{"traceId": "tr_other"})},
		{"AuthError", "another target", with(stolen, object{"target": object{"tabId": tab + 1}})},
		{"AuthError", "another target", with(stolen, object{"target": object{"tabId": tab, "sessionId": "ses_2"}})},
		{"RequestError", "jws", with(stolen, object{"jws": 1})},
		{"RequestError", "tab", with(stolen, object{"target": nil})},
		{"RequestError", "action", with(stolen, object{"action": "run"})},
		{"AuthError", "audience", r.message(fresh(object{"aud": "sandbox-agent"}))},
		{"AuthError", "iss", r.message(fresh(object{"iss": "relay"}))},
		{"RequestError", "no meaning", r.message(fresh(object{"sudo": true}))},
		{"RequestError", "no meaning", r.message(fresh(object{"op.more": 1}))},
		{"RequestError", "no meaning", r.message(fresh(object{"reply.more": 1}))},
		{"TargetError", "another extension", r.message(fresh(object{"target.extensionId": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}))},
		{"TargetError", "another browser", r.message(fresh(object{"target.browserId": "br_" + strings.Repeat("a", 26)}))},
		{"TargetError", "sandbox", r.message(fresh(object{"target.sandboxId": "sb_1"}))},
		{"ExpiredError", "expired", r.message(fresh(object{"issuedAt": 1730000000000}))},
		{"AuthError", "future", r.message(fresh(object{"issuedAt": 4730000000000}))},
		{"RequestError", "ttlMs", r.message(fresh(object{"ttlMs": 0}))},
		{"AuthError", "callback", reply("http://evil.example/control/callback")},
		{"AuthError", "callback", reply("http://" + host + "@evil.example/control/callback")},
		{"AuthError", "callback", reply("http://a@" + host + "/control/callback")},
		{"AuthError", "callback", reply(r.relay.URL + "/control/callback?x")},
		{"AuthError", "callback", reply(r.relay.URL + "/elsewhere")},
		{"AuthError", "callback", r.message(fresh(object{"reply": nil}))},
		{"UnsupportedError", "cdp.send", r.message(fresh(object{"op.kind": "cdp.sent"}))},
		{"AuthError", "not allowed", r.message(fresh(object{"op.method": "Network.getAllCookies"}))},
		{"AuthError", "not allowed", r.message(fresh(object{"op.method": "constructor"}))},
		{"AuthError", "member", r.message(fresh(object{"op.params.includeCommandLineAPI": true}))},
		{"AuthError", "http and https", r.message(navigate("file:///etc/passwd"))},
		{"AuthError", "http and https", r.message(navigate("javascript:alert(1)"))},
		{"AuthError", "http and https", r.message(navigate(" java\nscript:alert(1)"))},
		{"AuthError", "http and https", r.message(navigate("about:blank"))},
		{"AuthError", "http and https", r.message(navigate("view-source:http://a.example"))},
		{"AuthError", "it is ours", r.message(navigate(r.relay.URL + "/"))},
		{"AuthError", "it is ours", r.message(navigate(strings.Replace(r.relay.URL, "127.0.0.1", "LOCALHOST.", 1)))},
		{"AuthError", "it is ours", r.message(navigate(r.control.URL + "/x"))},
		{"AuthError", "it is ours", r.message(navigate("http://x.preview.localhost:1234/"))},
	} {
		r.refused(c.name, c.says, c.message)
	}
	r.until(t, "nothing of it is told", func() bool { return len(r.told) == 2 })
}

// failures are accepted, and told.
func (r *rig) failures(t *testing.T, shop int) {
	told := func(p object, says string) {
		t.Helper()
		got := r.outcome(t, r.accepted(p), 1)
		if got.Status != "error" || got.Error.Name != "TargetError" || !strings.Contains(got.Error.Message, says) {
			t.Errorf("told was %s, want a TargetError: %s", got.body, says)
		}
	}
	console := r.number(r.relay.URL)
	told(r.payload(console, "sessionStorage.token"), "not shared")
	told(r.payload(99999999, "1"), "not shared")
	_, foreign := r.open(r.site.URL + "/mail")
	told(r.payload(foreign, "1"), "not shared")
	told(with(r.payload(shop, "1"), object{"target.sessionId": "ses_2"}), "not shared")

	// Shared, then gone to where no command follows.
	for _, url := range []string{r.relay.URL + "/", r.other.URL + "/", r.control.URL + "/", "chrome://version/", "about:blank", "file:///etc/passwd"} {
		b, tab := r.open(r.site.URL + "/leaves")
		r.share(tab, "ses_1")
		b.run(chromedp.Navigate(url))
		told(r.payload(tab, "document.title"), "not at a site")
	}
	// Shared, then closed.
	b, tab := r.open(r.site.URL + "/closes")
	r.share(tab, "ses_1")
	eval[any](r.popup, fmt.Sprintf(`(chrome.tabs.remove(%d), null)`, tab))
	r.popup.until(fmt.Sprintf(`!window.state.shares.some((s) => s.tabId === %d)`, tab))
	told(r.payload(tab, "1"), "not shared")
	_ = b

	// Too large an answer.
	got := r.outcome(t, r.accepted(r.payload(shop, "'x'.repeat(200000)")), 1)
	if got.Error.Name != "LimitError" {
		t.Errorf("of a large answer is told %.300s", got.body)
	}
	// A script that leaves for the console in the middle: held up, and told.
	b, tab = r.open(r.site.URL + "/jumps")
	r.share(tab, "ses_1")
	p := r.payload(tab, fmt.Sprintf("location.href = %q, new Promise((done) => setTimeout(done, 300))", r.relay.URL+"/jumped"))
	got = r.outcome(t, r.accepted(with(p, object{"op.params.awaitPromise": true})), 1)
	if title := eval[string](b, `document.title`); title == "console" || title == "jumped" || got.Status == "ok" {
		t.Errorf("the tab shows %q, and %s is told", title, got.body)
	}
	if strings.Contains(got.body, "ut_alice") {
		t.Errorf("the console's secrets are told: %s", got.body)
	}
}

// strangers get no answer at all.
func (r *rig) strangers(t *testing.T) {
	site, _ := r.open(r.site.URL + "/stranger")
	if eval[bool](site, `typeof chrome === 'object' && typeof chrome.runtime?.sendMessage === 'function'`) {
		t.Error("a stranger's page can speak to the extension")
	}
	framed, _ := r.open(r.relay.URL + "/framed")
	framed.until(`window.heard !== undefined`)
	if heard := eval[string](framed, `window.heard`); strings.Contains(heard, "browserId") || strings.Contains(heard, "ok") {
		t.Errorf("a sandboxed frame hears %s", heard)
	}
	for _, message := range []any{nil, 1, "driver", []int{1}, object{}, object{"type": "other"}, object{"type": "DRIVER", "action": "describe", "requestId": "1"}} {
		if a := r.say(r.console, message); a.Silent == "" {
			t.Errorf("%v is answered: %+v", message, a)
		}
	}
}

// The worker dies before a command, in the middle, and before its outcome was heard.
func TestPagesWorkerDies(t *testing.T) {
	r := newRig(t, nil)
	before := r.describe("ses_1").Data.BrowserID
	shop, tab := r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")

	r.kill()
	if got := r.outcome(t, r.accepted(r.payload(tab, "1+1")), 1); got.Status != "ok" {
		t.Errorf("woken by a command: %s", got.body)
	}

	// In the middle: it isn't known what came of it, and it doesn't run again.
	p := r.payload(tab, "window.list.push('once'), new Promise(() => undefined)")
	p = with(p, object{"op.params.awaitPromise": true})
	id := r.accepted(p)
	shop.until(`window.list.length === 1`)
	r.kill()
	if after := r.describe("ses_1").Data.BrowserID; after != before {
		t.Errorf("the browser is %s, and was %s", after, before)
	}
	if got := r.outcome(t, id, 1); got.Status != "unknown" || got.Error.Name != "" {
		t.Errorf("of a worker that died is told %s", got.body)
	}
	r.accepted(p)
	if got := r.outcome(t, r.accepted(r.payload(tab, "window.list.join()")), 1); !strings.Contains(string(got.Result.Response), `"once"`) {
		t.Errorf("the tab answers %s, and the command ran once", got.body)
	}

	// Before it was heard: the next worker tells it.
	r.do(func() { r.refuse = http.StatusServiceUnavailable })
	p = r.payload(tab, "window.list.push('told'), 7")
	id = r.accepted(p)
	r.outcome(t, id, 2) // it tries again by itself
	r.kill()
	r.do(func() { r.refuse = 0 })
	r.describe("ses_1")
	var last told
	r.until(t, "told again", func() bool {
		list := r.of(id)
		last = list[len(list)-1]
		return len(list) > 2
	})
	if last.Status != "ok" || last.Telemetry.Attempt < 3 || !strings.Contains(string(last.Result.Response), `"value":7`) {
		t.Errorf("told at last was %s", last.body)
	}
	if list := eval[string](shop, `window.list.join()`); list != "once,told" {
		t.Errorf("what ran: %s", list)
	}
}

var long = flag.Bool("pages.long", false, "wait for Chrome to end the worker by itself, and for the alarm: a minute")

// Chrome itself ends the worker, and nobody speaks to it: the alarm brings the next
// one, which tells what nobody has heard.
func TestPagesAlarm(t *testing.T) {
	if !*long {
		t.Skip("without -pages.long")
	}
	r := newRig(t, nil)
	r.describe("ses_1")
	_, tab := r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")
	r.do(func() { r.refuse = http.StatusServiceUnavailable })
	id := r.accepted(with(r.payload(tab, "7"), object{"ttlMs": 600000}))
	r.outcome(t, id, 1)
	r.popup.run(chromedp.Navigate("about:blank")) // its port would bring a worker
	for range 5 {
		r.kill()
	}
	if r.worker() != "" {
		t.Fatal("a worker is there already")
	}
	r.do(func() { r.refuse, r.told = 0, nil })
	if got := r.outcome(t, id, 1); got.Status != "ok" || got.Telemetry.Attempt < 2 {
		t.Errorf("told was %s", got.body)
	}
}

// Between two sends of one command the browser ends.
func TestPagesBrowserRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser")
	}
	p, profile := newPlatform(t), t.TempDir()
	r := p.rig(t, profile, nil)
	before := r.describe("ses_1").Data.BrowserID
	_, tab := r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")
	order := with(r.payload(tab, "fetch('/bought').then(() => 1)"), object{"op.params.awaitPromise": true, "ttlMs": 600000})
	r.outcome(t, r.accepted(order), 1)
	later[any](r.popup, `new Promise((done) => setTimeout(done, 200))`) // the disk hears of it
	if err := chromedp.Cancel(r.browser); err != nil {
		t.Fatal(err)
	}

	r = p.rig(t, profile, nil)
	if after := r.describe("ses_1").Data.BrowserID; after != before {
		t.Errorf("the browser is %s, and was %s", after, before)
	}
	if n := eval[int](r.popup, `window.state?.shares.length ?? 0`); n != 0 {
		t.Errorf("%d tabs are shared by a browser that has just begun", n)
	}
	r.accepted(order)
	_, tab = r.open(r.site.URL + "/shop")
	r.share(tab, "ses_1")
	r.outcome(t, r.accepted(r.payload(tab, "1")), 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hits["/bought"] != 1 || len(p.of(order["commandId"].(string))) != 1 {
		t.Errorf("it ran %d times, and was told %d times", p.hits["/bought"], len(p.of(order["commandId"].(string))))
	}
}

// A hundred commands at once for ten tabs: each once, and in order in each tab.
func TestPagesMany(t *testing.T) {
	r := newRig(t, nil)
	r.describe("ses_1")
	var tabs []*tab
	var messages []object
	var ids []string
	for i := range 10 {
		b, tab := r.open(fmt.Sprintf("%s/%d", r.site.URL, i))
		r.share(tab, "ses_1")
		tabs = append(tabs, b)
		for n := range 10 {
			p := r.payload(tab, fmt.Sprintf("window.list.push(%d)", n))
			messages, ids = append(messages, r.message(p)), append(ids, p["commandId"].(string))
		}
	}
	data, _ := json.Marshal(messages)
	accepted := later[int](r.console, fmt.Sprintf(`Promise.all(%s.map((m) => chrome.runtime.sendMessage(%q, m))).then((all) => all.filter((a) => a.ok).length)`, data, r.id))
	if accepted != 100 {
		t.Errorf("%d of 100 are accepted", accepted)
	}
	for _, id := range ids {
		if got := r.outcome(t, id, 1); got.Status != "ok" {
			t.Fatalf("told was %s", got.body)
		}
	}
	for i, b := range tabs {
		if list := eval[string](b, `window.list.join()`); list != "0,1,2,3,4,5,6,7,8,9" {
			t.Errorf("in tab %d ran %s", i, list)
		}
	}

	// A page that doesn't stop speaking is refused, and heard again when it does.
	refused := later[int](r.console, fmt.Sprintf(`Promise.all(Array.from({length: 2000}, (_, i) => chrome.runtime.sendMessage(%q, {type: 'driver', action: 'describe', requestId: 'r' + i}))).then((all) => all.filter((a) => a.error?.name === 'LimitError').length)`, r.id))
	if refused < 1000 || refused >= 2000 {
		t.Errorf("%d of 2000 messages are refused", refused)
	}
	r.popup.until(fmt.Sprintf(`window.state.refused >= %d`, refused))
	for !r.describe("ses_1").OK {
		r.console.run()
	}
}
