package extension_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/extension"
)

// A told is a callback as it came.
type told struct {
	bearer, origin string
	at             time.Time
	body           string

	CommandID, TraceID, Status string
	Result                     struct {
		Kind, Method string
		TabID        int
		Response     json.RawMessage
	}
	Error     struct{ Name, Message string }
	Telemetry struct{ DurationMs, Attempt int }
}

// A platform stands for a relay, the control plane and a site of somebody else's.
type platform struct {
	relay, other, control, site *httptest.Server

	mu      sync.Mutex
	changed chan struct{}
	told    []told
	refuse  int // status for callbacks; 0: 204
	fetched int // of the keys
	keys    http.HandlerFunc
	hits    map[string]int // of the site, by path
	key     *ecdsa.PrivateKey
	ended   chan struct{}
}

func newPlatform(t testing.TB) *platform {
	t.Helper()
	p := &platform{changed: make(chan struct{}), hits: map[string]int{}, key: newKey(t), ended: make(chan struct{})}
	console := http.NewServeMux()
	console.HandleFunc("GET /", htmlPage("console", ""))
	console.HandleFunc("GET /framed", htmlPage("framed", `<iframe sandbox="allow-scripts" src="/inner"></iframe><script>addEventListener('message', (e) => window.heard = e.data)</script>`))
	console.HandleFunc("GET /inner", htmlPage("inner", `<script>
		const say = (what) => parent.postMessage(what, '*');
		try { chrome.runtime.sendMessage(new URLSearchParams(location.search).get('id') ?? 'iiccclfiiimldghpdoopenbcnepmabgb', {type: 'driver', action: 'describe', requestId: 'x'}, (a) => say(JSON.stringify(a ?? chrome.runtime.lastError?.message ?? null))) } catch (e) { say('' + e) }
	</script>`))
	console.HandleFunc("POST /control/callback", p.callback)
	p.relay, p.other = httptest.NewServer(console), httptest.NewServer(console)
	p.control = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.fetched++
		answer := p.keys
		p.mu.Unlock()
		answer(w, r)
	}))
	p.keys = p.publish(p.key)
	p.site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.do(func() { p.hits[r.URL.Path]++ })
		htmlPage("A shop", `<h1>A shop</h1><script>window.list = []</script>`)(w, r)
	}))
	t.Cleanup(func() {
		close(p.ended)
		for _, s := range []*httptest.Server{p.relay, p.other, p.control, p.site} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func htmlPage(title, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "<!doctype html><title>%s</title>%s", title, body)
	}
}

var b64 = base64.RawURLEncoding

// publish is the control plane's JWK set with one key, under the kid k1.
func (p *platform) publish(key *ecdsa.PrivateKey) http.HandlerFunc {
	point, _ := key.PublicKey.Bytes()
	return func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{
			map[string]any{"kty": "future", "kid": "k0"},
			map[string]any{"kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig", "alg": "ES256", "x": b64.EncodeToString(point[1:33]), "y": b64.EncodeToString(point[33:])},
		}})
	}
}

func (p *platform) do(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *platform) until(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx := patience(t)
	for {
		p.mu.Lock()
		done, changed := so(), p.changed
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("never: %s; told was %+v", what, p.told)
		}
	}
}

func (p *platform) callback(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := told{bearer: r.Header.Get("Authorization"), origin: r.Header.Get("Origin"), at: time.Now(), body: string(body)}
	json.Unmarshal(body, &got)
	status := http.StatusNoContent
	p.do(func() {
		p.told = append(p.told, got)
		if p.refuse != 0 {
			status = p.refuse
		}
	})
	w.WriteHeader(status)
}

// of are the callbacks of a command so far; p.mu is held.
func (p *platform) of(id string) (list []told) {
	for _, t := range p.told {
		if t.CommandID == id {
			list = append(list, t)
		}
	}
	return list
}

// outcome waits for the nth callback of a command.
func (p *platform) outcome(t testing.TB, id string, n int) told {
	t.Helper()
	var got told
	p.until(t, fmt.Sprintf("callback %d of %s", n, id), func() bool {
		list := p.of(id)
		if len(list) < n {
			return false
		}
		got = list[n-1]
		return true
	})
	return got
}

type object = map[string]any

// with returns a copy with changes, by dotted names; nil takes away.
func with(o object, changes object) object {
	o = maps.Clone(o)
	for name, value := range changes {
		first, rest, deep := strings.Cut(name, ".")
		switch {
		case deep:
			inner, _ := o[first].(object)
			o[first] = with(inner, object{rest: value})
		case value == nil:
			delete(o, name)
		default:
			o[name] = value
		}
	}
	return o
}

// A rig is a browser with the part pages, a console's tab and the popup's page.
type rig struct {
	testing.TB
	*platform
	id      string
	browser context.Context
	end     context.CancelFunc
	console *tab
	popup   *tab
	count   int
}

func newRig(t testing.TB, change func(*extension.Options)) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser")
	}
	p := newPlatform(t)
	return p.rig(t, t.TempDir(), change)
}

// rig starts a browser with a profile, and with other extensions.
func (p *platform) rig(t testing.TB, profile string, change func(*extension.Options), others ...string) *rig {
	t.Helper()
	opts := extension.Options{Parts: []string{"panel", "pages"}, Origins: []string{p.relay.URL, p.other.URL}, JWKS: p.control.URL + "/.well-known/jwks.json"}
	if change != nil {
		change(&opts)
	}
	e := make1(t, opts)
	r := &rig{TB: t, platform: p, id: e.ID}
	r.browser, r.end = launch(t, e, profile, others...)
	r.popup = newTab(t, r.browser, 390, 640, "chrome-extension://"+e.ID+"/pages.html")
	r.popup.until(`typeof chrome.tabs === 'object'`)
	r.console = newTab(t, r.browser, 800, 600, p.relay.URL+"/#token=ut_alice")
	return r
}

// open opens a tab, and returns it with the number that extensions know it by.
func (r *rig) open(url string) (*tab, int) {
	r.Helper()
	b := newTab(r.TB, r.browser, 800, 600, url)
	mark := fmt.Sprintf("%s?mark=%d", url, time.Now().UnixNano())
	b.run(chromedp.Navigate(mark))
	return b, r.number(mark)
}

func (r *rig) number(url string) int {
	r.Helper()
	id := later[int](r.popup, fmt.Sprintf(`chrome.tabs.query({}).then((all) => all.find((t) => (t.url ?? '').startsWith(%q))?.id ?? 0)`, url))
	if id == 0 {
		r.Fatalf("no tab is at %s", url)
	}
	return id
}

// later evaluates to what a promise brings.
func later[T any](b *tab, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

// An answered is what a page hears.
type answered struct {
	OK                   bool
	RequestID, CommandID string
	Data                 struct {
		Accepted                 bool
		BrowserID, Version, Tabs string
	}
	Error  struct{ Name, Message string }
	Silent string
}

// say sends a message to the extension from a page.
func (r *rig) say(b *tab, message any) answered {
	r.Helper()
	data, _ := json.Marshal(message)
	text := later[string](b, fmt.Sprintf(`chrome.runtime.sendMessage(%q, %s).then((a) => JSON.stringify(a ?? {Silent: 'nothing'}), (e) => JSON.stringify({Silent: String(e)}))`, r.id, data))
	var a answered
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		r.Fatalf("%s: %v", text, err)
	}
	return a
}

// describe names a session to the extension.
func (r *rig) describe(session string) answered {
	r.Helper()
	return r.say(r.console, object{"type": "driver", "action": "describe", "requestId": "web-1", "session": object{"id": session, "name": "Alice’s board"}})
}

// share shares a tab, as the popup does.
func (r *rig) share(tab int, session string) {
	r.Helper()
	eval[any](r.popup, fmt.Sprintf(`(window.port = chrome.runtime.connect({name: 'pages'}), window.port.onMessage.addListener((s) => window.state = s), window.port.postMessage({do: 'share', tabId: %d, sessionId: %q, minutes: 60}), null)`, tab, session))
	r.popup.until(fmt.Sprintf(`window.state?.shares.some((s) => s.tabId === %d && s.sessionId === %q)`, tab, session))
}

// payload is a command for a tab, evaluating an expression.
func (r *rig) payload(tab int, expression string) object {
	r.count++
	id := fmt.Sprintf("%d_%d", r.count, time.Now().UnixNano())
	return object{
		"iss": "control-server", "aud": "browser-extension", "commandId": "cmd_" + id, "traceId": "tr_" + id,
		"issuedAt": time.Now().UnixMilli(), "ttlMs": 30000,
		"target": object{"sessionId": "ses_1", "extensionId": r.id, "tabId": tab},
		"op":     object{"kind": "cdp.send", "method": "Runtime.evaluate", "params": object{"expression": expression, "returnByValue": true}},
		"reply":  object{"url": r.relay.URL + "/control/callback", "callbackToken": "ct_" + id},
	}
}

func sign(key *ecdsa.PrivateKey, header, payload any) string {
	h, _ := json.Marshal(header)
	p, _ := json.Marshal(payload)
	input := b64.EncodeToString(h) + "." + b64.EncodeToString(p)
	sum := sha256.Sum256([]byte(input))
	x, y, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		panic(err)
	}
	signature := make([]byte, 64)
	x.FillBytes(signature[:32])
	y.FillBytes(signature[32:])
	return input + "." + b64.EncodeToString(signature)
}

// message is what the page sends of a command.
func (r *rig) message(payload object) object {
	tab := payload["target"].(object)["tabId"]
	return object{
		"type": "driver", "action": "invoke", "requestId": "web-2", "commandId": payload["commandId"], "traceId": payload["traceId"],
		"target": object{"tabId": tab}, "jws": sign(r.key, object{"alg": "ES256", "kid": "k1", "typ": "command+jws"}, payload),
	}
}

// accepted sends a command, which must be accepted, and returns its id.
func (r *rig) accepted(payload object) string {
	r.Helper()
	if a := r.say(r.console, r.message(payload)); !a.OK || !a.Data.Accepted || a.RequestID != "web-2" || a.CommandID != payload["commandId"] {
		r.Fatalf("not accepted: %+v", a)
	}
	return payload["commandId"].(string)
}

// kill ends the extension's worker, as Chrome does after half a minute. One that
// goes by itself meanwhile never answers, so it is told again.
func (r *rig) kill() {
	r.Helper()
	worker := r.worker()
	for ctx := patience(r.TB); worker != "" && r.worker() == worker; {
		if ctx.Err() != nil {
			r.Fatal("the worker doesn't end")
		}
		once, stop := context.WithTimeout(r.browser, time.Second)
		_, _ = chromedp.CallBrowser(once, target.CloseTarget, target.CloseTargetParams{TargetID: worker})
		stop()
	}
}

// worker is the extension's worker, if it runs.
func (r *rig) worker() target.ID {
	r.Helper()
	targets, err := chromedp.Targets(r.browser)
	if err != nil {
		r.Fatal(err)
	}
	for _, info := range targets {
		if info.Type == "service_worker" && strings.Contains(info.URL, r.id) {
			return info.TargetID
		}
	}
	return ""
}
