package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/installed"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	session = protocol.SessionID("ses_1")

	// patience is how long tests wait for what must come.
	patience = time.Minute
)

// shared is the world of all tests that only need a Chromium: a start takes half
// a second and more.
var shared struct {
	once sync.Once
	*world
}

// runner runs the tests, and ends the shared world before leaks are looked for.
type runner struct{ m *testing.M }

func (r runner) Run() int {
	if os.Getenv(childDir) != "" {
		runChild()
	}
	if os.Args[len(os.Args)-1] == writeCookies {
		runWriter()
	}
	code := r.m.Run()
	if shared.world != nil {
		shared.close()
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(runner{m}) }

// A world is a Browser, a site that pages may reach, and one on a port of the
// agent's.
type world struct {
	*Browser
	dir          string
	pages        map[string]http.HandlerFunc // of site, beside /; set before use
	site, closed *httptest.Server

	egress *egressProxy // for everything that isn't on this machine

	mu   sync.Mutex
	hits []string // guarded by mu: what closed was asked for
}

// needChromium skips a test where there is none, or fails where all must run.
func needChromium(t *testing.T) {
	t.Helper()
	if _, err := installed.Chromium(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// theWorld returns the shared world.
func theWorld(t *testing.T) *world {
	t.Helper()
	needChromium(t)
	shared.once.Do(func() {
		w, err := newWorld(Options{leave: patience, Metrics: NewMetrics()}) // no page hangs but that of TestLoop
		if err != nil {
			t.Fatal(err)
		}
		shared.world = w
	})
	if shared.world == nil {
		t.Fatal("the world could not be made")
	}
	return shared.world
}

// newWorld makes a world with the rest of opts.
func newWorld(opts Options) (*world, error) {
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	w := &world{dir: dir, pages: sitePages()}
	w.site = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		if page, ok := w.pages[r.URL.Path]; ok {
			page(rw, r)
			return
		}
		fmt.Fprintf(rw, "<!DOCTYPE html><title>%s</title><body>page %[1]s</body>", r.URL.Path)
	}))
	w.closed = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hits = append(w.hits, r.URL.Path)
		rw.Header().Set("Access-Control-Allow-Origin", "*")
		io.WriteString(rw, "the agent's own")
	}))
	closed := portOf(w.closed.URL)
	opts.Dir = filepath.Join(dir, "browsers")
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Ports = agentPort(closed)
	w.egress = newEgressProxy(w.site.URL)
	opts.Egress = w.egress
	if w.Browser, err = New(opts); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *world) close() {
	w.Browser.Close()
	w.site.Close()
	w.closed.Close()
	w.egress.Close()
	os.RemoveAll(w.dir)
}

func portOf(address string) int {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return int(netip.MustParseAddrPort(u.Host).Port())
}

// call calls a tool, whose arguments are name, value, name, value, …
func (w *world) call(name string, pairs ...any) (protocol.ToolResult, error) {
	args := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		args[pairs[i].(string)] = pairs[i+1]
	}
	text, err := json.Marshal(args)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	caller := toolbox.Caller{Session: session, PTY: "pty_1"}
	for _, tool := range w.Tools(caller) {
		if tool.Name == name {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			return tool.Call(ctx, caller, text)
		}
	}
	return protocol.ToolResult{}, fmt.Errorf("no tool %s", name)
}

// text calls a tool that must succeed, and returns its text.
func (w *world) text(t *testing.T, name string, pairs ...any) string {
	t.Helper()
	result, err := w.call(name, pairs...)
	if err != nil || result.IsError || len(result.Content) != 1 {
		t.Fatalf("%s %v: %+v %v", name, pairs, result, err)
	}
	return result.Content[0].Text
}

// visit opens a page of the site.
func (w *world) visit(t *testing.T, path string) {
	t.Helper()
	w.text(t, "browser_navigate", "url", w.site.URL+path)
}

// evaluate runs a script in the page.
func (w *world) evaluate(t *testing.T, script string) string {
	t.Helper()
	return w.text(t, "browser_evaluate", "script", script)
}

// eventually waits for something that Chromium does by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !is(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not %s in %s", what, patience)
		}
	}
}

// asked returns what the closed site was asked for since the last call.
func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	hits := w.hits
	w.hits = nil
	return hits
}

// chromium returns the session's; nil: there is none.
func (w *world) chromium() *chromium {
	w.Browser.mu.Lock()
	defer w.Browser.mu.Unlock()
	if s := w.seats[session]; s != nil {
		return s.running
	}
	return nil
}

// page returns the page of a tab; 0: the active one.
func (w *world) page(t *testing.T, tab int) *page {
	t.Helper()
	p, err := w.tabsOf(session).page(t.Context(), w.chromium(), roster.Want{Tab: tab})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// form is a page with things to act on.
const form = `<!DOCTYPE html><title>form</title>
<input id=name value=old><select id=list><option value=a>one<option value=b>two</select>
<form action=/sent><input name=q id=q></form><div id=rich contenteditable>rich</div>
<button id=button onclick="document.title = 'clicked ' + event.isTrusted">press</button>
<a id=link href=/linked target=_blank>away</a>
<p id=hidden style="display:none">hidden</p>
<div style="height:5000px"></div><button id=far onclick="document.title = 'far'">far</button>
<script>setTimeout(() => { const p = document.createElement("p"); p.id = "late"; p.textContent = "late"; document.body.append(p) }, 200)</script>`

func html(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// sitePages are the pages of the site that are more than their path.
func sitePages() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/form": html(form),
		"/redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		},
		"/download": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Disposition", "attachment; filename=loot.bin")
			io.WriteString(w, strings.Repeat("x", 1000))
		},
		"/huge": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<!DOCTYPE html><title>huge</title><body>"+strings.Repeat("ä ", 400<<10))
		},
		"/popups":   html(`<!DOCTYPE html><title>popups</title><script>for (let i = 0; i < 20; i++) window.open("/popup" + i, "w" + i)</script>`),
		"/thousand": html(`<!DOCTYPE html><title>thousand</title><button id=windows onclick="for (let i = 0; i < 1000; i++) window.open('/window' + i, '_blank')">open</button>`),
		"/dialogs":  html(`<!DOCTYPE html><title>dialogs</title><script>alert(1); confirm(2); document.title = String(prompt(3)); onbeforeunload = (e) => e.preventDefault()</script>`),
		"/loop":     html(`<!DOCTYPE html><title>loop</title><script>setTimeout(() => { for (;;); }, 50)</script>`),
		"/noise": html(`<!DOCTYPE html><title>noise</title><script>
			const long = "x".repeat(1 << 16);
			for (let i = 0; i < 50; i++) console.log(long);
			setInterval(() => { const f = document.createElement("iframe"); document.body.append(f); f.remove(); console.log(long); history.replaceState(0, "", "#" + Math.random()) }, 10)</script>`),
		"/moving": html(`<!DOCTYPE html><title>moving</title><div id=d style="position:absolute;width:200px;height:200px"></div><script>
			let n = 0; (function step() { d.style.left = (n++ * 7) % 900 + "px"; d.style.background = "hsl(" + n * 5 % 360 + ",80%,50%)"; requestAnimationFrame(step) })()</script>`),
	}
}

// listenUDP returns a socket that hostile pages try to reach.
func listenUDP(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
