package panelapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// sessionBody names a panel's session.
func sessionBody(m mint) string { return `{"sessionId":"` + string(m.SessionID) + `"}` }

// again is POST /pty-session/reattach.
func (w *world) again(m mint, change func(*jws.Grant)) mint {
	w.t.Helper()
	return w.minted(w.ask(http.MethodPost, "/pty-session/reattach", w.grant(change), sessionBody(m)))
}

// The later panel, frame by frame (chat-and-shell.md B1, HEAD): the token as
// subprotocol, resize, tabState, start, ping; lost, it comes back to the same
// terminal and screen.
func TestTheLaterPanel(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	if m.AttachToken == "" || m.AttachToken != m.PTYSessionToken || m.AttachToken == m.cookie.Value || m.LeaseExpiresAt <= time.Now().UnixMilli() {
		t.Errorf("%+v", m)
	}
	p := w.dial(m, true, "")
	if p.Subprotocol() != "gstack-pty."+m.AttachToken {
		t.Errorf("%q", p.Subprotocol())
	}
	p.send(`{"type":"resize","cols":88,"rows":22}`)
	p.send(`{"type":"tabState","active":{"tabId":7,"url":"https://a.example/?token=s","title":"A"},"tabs":[],"reason":"x"}`)
	p.send(`{"type":"start"}`)
	if at := p.hear("attached"); at["sessionId"] != string(m.SessionID) || at["epoch"] == "" {
		t.Errorf("%v", at)
	}
	p.output("\n")
	p.send(`{"type":"start"}`) // it has begun
	p.key("hi")
	p.output("hi")
	w.see(m.SessionID, func(t1 *terminal) {
		if t1.begunAt != [2]int{88, 22} || string(t1.typed) != "\nhi" || t1.create.OnDetach != detachKeep {
			t.Errorf("%+v", t1)
		}
	})
	w.await("the tab", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.tabs) == 1 })
	if w.tabs[0] != (op.PanelTab{TabID: 7, URL: "https://a.example/?token=[REDACTED]", Title: "A"}) {
		t.Errorf("%+v", w.tabs)
	}
	p.CloseNow()
	n := w.again(m, nil)
	if n.SessionID != m.SessionID || n.AttachToken == m.AttachToken {
		t.Errorf("%+v, then %+v", m, n)
	}
	q := w.dial(n, true, "")
	if back := q.hear("reattach-begin"); back["sessionId"] != string(m.SessionID) {
		t.Errorf("%v", back)
	}
	q.output("\nhi") // so short that it is all there
	q.key("again")
	q.output("again")
	q.Close(websocket.StatusNormalClosure, "") // it won't come back
	w.await("the terminal to be closed", func() bool { return w.done(op.KindPTYClose) == 1 })
	if resp := w.ask(http.MethodPost, "/pty-session/reattach", w.grant(nil), sessionBody(m)); resp.StatusCode != http.StatusGone {
		t.Errorf("%d", resp.StatusCode)
	}
}

// Weakness 19: a socket that was replaced and closes late takes nothing from the new
// one.
func TestALateCloseMutesNobody(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	old := w.dial(m, true, "")
	old.key("a")
	old.hear("attached")
	old.output("a")
	p := w.dial(w.again(m, nil), true, "")
	p.hear("reattach-begin")
	p.output("a")
	old.CloseNow()
	w.await("the old one to leave", func() bool { return w.gauge("fairlead_viewers") == 1 && w.gauge("fairlead_panel_sockets") == 1 })
	p.key("b")
	p.output("b")
	if n := w.done(op.KindPTYClose); n != 0 {
		t.Errorf("%d closed", n)
	}
}

// Weakness 20: a token opens one socket, for 30 s, and none after its grant.
func TestATokenIsForOneSocket(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	p := w.dial(m, true, "")
	if code, _ := w.upgrade("Sec-WebSocket-Protocol", "gstack-pty."+m.AttachToken); code != 401 {
		t.Errorf("again: %d", code)
	}
	if code, _ := w.upgrade("Cookie", "gstack_pty="+m.cookie.Value); code != 401 {
		t.Errorf("its cookie: %d", code)
	}
	p.CloseNow()
	if code, echo := w.upgrade("Sec-WebSocket-Protocol", w.mint(nil).AttachToken); code != 101 || strings.Contains(echo, "|") {
		t.Errorf("a bare one: %d %q", code, echo)
	}
	id := protocol.NewGrantID()
	m = w.mint(func(g *jws.Grant) { g.ID = id })
	w.authority.Revoked.Add(id)
	if code, _ := w.upgrade("Sec-WebSocket-Protocol", "gstack-pty."+m.AttachToken); code != 401 {
		t.Errorf("of a revoked grant: %d", code)
	}
}

// Weakness 21: a socket goes on for as long as its person uses newer grants, and its
// terminal is found after half an hour as well.
func TestASocketOutlivesItsGrant(t *testing.T) {
	w := newWorld(t)
	soon := func(life time.Duration) func(*jws.Grant) {
		return func(g *jws.Grant) { g.ExpiresAt = time.Now().Add(life).Unix() }
	}
	for name, renew := range map[string]func(p *panel){
		"it polls":            func(*panel) { w.ask(http.MethodGet, "/claude-available", w.grant(nil), "") },
		"it asks for health":  func(*panel) { w.ask(http.MethodGet, "/health", w.grant(nil), "") },
		"it says so":          func(p *panel) { p.send(`{"type":"reauth","grant":"` + w.grant(nil) + `"}`) },
		"it wants another":    func(*panel) { w.ask(http.MethodPost, "/pty-session", w.grant(nil), "") },
		"another one expires": nil,
	} {
		t.Run(name, func(t *testing.T) {
			p := w.dial(w.mint(soon(time.Minute)), true, "")
			p.key("a")
			p.hear("attached")
			p.output("a")
			if renew != nil {
				renew(p)
				p.hear("reauthed")
			}
			w.authority.Ahead.Add(int64(2 * time.Minute))
			defer w.authority.Ahead.Add(-int64(2 * time.Minute))
			w.authority.Revoked.Add("gr_wake") // the clock was moved: look again
			if renew == nil {
				if code, _, _ := p.closed(); code != protocol.KindExpired.CloseCode() {
					t.Errorf("%d", code)
				}
				return
			}
			p.key("b")
			p.output("b")
		})
	}
	for name, change := range map[string]func(*jws.Grant){
		"somebody else's":    func(g *jws.Grant) { g.Subject = "usr_bob" },
		"another session's":  func(g *jws.Grant) { g.Session = "ses_2" },
		"one to view":        func(g *jws.Grant) { g.Caps = g.Caps[:1] },
		"another terminal's": func(g *jws.Grant) { g.PTYs = []string{"pty_9"} },
	} {
		p := w.dial(w.mint(nil), true, "")
		p.send(`{"type":"reauth","grant":"` + w.grant(change) + `"}`)
		if m := p.hear("error"); m["code"] != "AuthError" {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// Weakness 22: who comes back gets the screen, not a megabyte, and at its offset only
// what is missing. A page that goes away without a word closes nothing.
func TestComingBackCostsAScreen(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	p := w.dial(m, true, "")
	p.key("flood")
	at := p.hear("attached")
	for n, behind := 0, false; n < 2<<20 && !behind; {
		_, data, err := p.Read(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		n += len(data)
		behind = bytes.HasSuffix(data, []byte("KEYFRAME")) // a slow one is shown the end of it
	}
	p.CloseNow()
	q := w.dial(w.again(m, nil), true, "")
	if back := q.hear("reattach-begin"); back["mode"] != protocol.ModeKeyframe || back["keyframe_bytes"] != float64(len("KEYFRAME")) {
		t.Errorf("%v", back)
	}
	if got := q.output("KEYFRAME"); len(got) > 64 {
		t.Errorf("%d bytes", len(got))
	}
	since := fmt.Sprintf("?since=%v:%d", at["epoch"], 2<<20-3)
	r := w.dial(w.again(m, nil), true, since)
	if back := r.hear("reattach-begin"); back["mode"] != protocol.ModeResume || back["keyframe_bytes"] != float64(0) {
		t.Errorf("%v", back)
	}
	if got := r.output("xxx"); len(got) != 3 {
		t.Errorf("%d bytes", len(got))
	}
	if w.done(op.KindPTYClose) != 0 {
		t.Error("it was closed")
	}
}

// A restart ends the terminal, tells its socket so, and gives a new one.
func TestRestartAndDispose(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	p := w.dial(m, true, "")
	p.key("a")
	p.hear("attached")
	n := w.minted(w.ask(http.MethodPost, "/pty-restart", w.grant(nil), sessionBody(m)))
	if n.SessionID == m.SessionID || n.Killed != 1 {
		t.Errorf("%+v", n)
	}
	if code, _, _ := p.closed(); code != 4001 {
		t.Errorf("%d", code)
	}
	q := w.dial(n, true, "")
	q.key("b")
	q.hear("attached")
	q.output("b")
	// A beacon has no headers: its grant is in the body, which says that it is text.
	body := `{"sessionId":"` + string(n.SessionID) + `","authToken":"` + w.grant(nil) + `"}`
	if resp := w.ask(http.MethodPost, "/pty-dispose", "", body, "Content-Type", "text/plain"); w.text(resp) != `{"ok":true}` {
		t.Errorf("%d", resp.StatusCode)
	}
	if code, _, _ := q.closed(); code != 1000 {
		t.Errorf("%d", code)
	}
	for name, c := range map[string]struct {
		path, bearer, body string
		want               int
	}{
		"no id":                    {"/pty-dispose", w.grant(nil), `{}`, 400},
		"not an id":                {"/pty-dispose", w.grant(nil), `{"sessionId":"../x"}`, 400},
		"not JSON":                 {"/pty-restart", w.grant(nil), `x`, 400},
		"reattach to nothing":      {"/pty-session/reattach", w.grant(nil), ``, 400},
		"to what never was":        {"/pty-session/reattach", w.grant(nil), `{"sessionId":"pty_x"}`, 410},
		"of another terminal":      {"/pty-session/reattach", w.grant(func(g *jws.Grant) { g.PTYs = []string{"pty_9"} }), `{"sessionId":"pty_x"}`, 403},
		"a grant that is too long": {"/pty-dispose", "", `{"sessionId":"pty_x","authToken":"` + strings.Repeat("a", maxNamed) + `"}`, 413},
	} {
		if resp := w.ask(http.MethodPost, c.path, c.bearer, c.body); resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
}

// What the control plane or the sandbox refuses is said in words.
func TestARefusedTerminal(t *testing.T) {
	w := newWorld(t)
	w.sign = http.StatusForbidden
	p := w.dial(w.mint(nil), false, "")
	p.key("a")
	code, _, last := p.closed()
	if code != protocol.KindForbidden.CloseCode() || !strings.Contains(last, `"type":"error"`) {
		t.Errorf("%d after %s", code, last)
	}
}

// A panel that polls 100 times a second costs the sandbox little, and is counted.
func TestPollingIsBounded(t *testing.T) {
	w := newWorld(t)
	grant := w.grant(nil)
	for range 100 {
		if resp := w.ask(http.MethodGet, "/claude-available", grant, ""); resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode)
		}
		w.ask(http.MethodGet, "/health", "", "")
	}
	if w.probed > 10 { // one in 2 s, however slow the machine
		t.Errorf("the sandbox was asked %d times", w.probed)
	}
	for range 100 {
		w.mint(nil)
	}
	if len(w.api.passes.byCookie) != maxPassesPerPerson || w.gauge("fairlead_panel_passes_dropped_total") != 100-maxPassesPerPerson {
		t.Errorf("%d passes", len(w.api.passes.byCookie))
	}
}

// Tabs are told one at a time, the last one always.
func TestOnlyTheLastTab(t *testing.T) {
	w := newWorld(t)
	p := w.dial(w.mint(nil), false, "")
	for i := range 200 {
		p.send(fmt.Sprintf(`{"type":"tabSwitch","tabId":%d,"url":"file:///x","title":"t"}`, i))
	}
	p.key("a")
	p.output("a")
	last := func() (id int64, n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n = len(w.tabs); n > 0 {
			id = w.tabs[n-1].TabID
		}
		return id, n
	}
	w.await("the last tab", func() bool { id, _ := last(); return id == 199 })
	if _, n := last(); n > 3 || w.tabs[0].URL != "" {
		t.Errorf("%d were told, %+v", n, w.tabs)
	}
	if skipped := w.gauge("fairlead_panel_tabs_skipped_total"); skipped < 190 {
		t.Errorf("%v skipped", skipped)
	}
}

// GET /health: what the seed's panel reads, and no token.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	said := w.text(w.ask(http.MethodGet, "/health", "", ""))
	for name, header := range map[string][]string{
		"a program": {"Origin", ""}, "a person": {"Origin", "", "Sec-Fetch-Mode", "navigate"},
	} {
		if said := w.text(w.ask(http.MethodGet, "/health", "", "", header...)); said != "not a panel" {
			t.Errorf("%s is told %s", name, said)
		}
	}
	if said := w.text(w.ask(http.MethodGet, "/health", "", "", "Origin", "", "Sec-Fetch-Mode", "cors")); !strings.Contains(said, "healthy") {
		t.Errorf("an extension that a browser sends no Origin for: %s", said)
	}
	for _, want := range []string{
		`"status":"healthy"`, `"revision":"r1"`, `"chatEnabled":true`, `"security":{"status":"off"}`, `"session":null`, `"tabs":0`, `"uptime":`, `"mode":`,
		`"agent":{"status":"idle","runningFor":null,"queueLength":0}`, `"terminalPort":`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %s in %s", want, said)
		}
	}
	if strings.Contains(strings.ToLower(said), "token") {
		t.Error(said)
	}
	if said := w.text(w.ask(http.MethodGet, "/health", "x", "")); !strings.Contains(said, `"session":null`) {
		t.Error(said)
	}
}

// Only a grant that may view the session learns from /health how its sandbox stands.
// To everybody else a busy sandbox, an idle one and none look the same.
func TestHealthIsTheViewers(t *testing.T) {
	w := newWorld(t)
	stripped := func(text string) string { // of what rises by itself
		head, tail, _ := strings.Cut(text, `"uptime":`)
		return head + strings.TrimLeft(tail, "0123456789")
	}
	nobody := stripped(w.text(w.ask(http.MethodGet, "/health", "", "")))
	w.standing = `{"tabs":3,"session":{"id":"s1","name":"Side panel"},"agent":{"status":"hung","runningFor":300001,"queueLength":2},"more":1}`
	told := w.text(w.ask(http.MethodGet, "/health", w.grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView} }), ""))
	for _, want := range []string{
		`"status":"healthy"`, `"tabs":3`, `"session":{"id":"s1","name":"Side panel"}`, `"agent":{"status":"hung","runningFor":300001,"queueLength":2}`,
	} {
		if !strings.Contains(told, want) {
			t.Errorf("no %s in %s", want, told)
		}
	}
	w.asked = 0
	for name, bearer := range map[string]string{
		"nobody": "", "a bearer that is none": "x",
		"a grant to chat alone": w.grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapChat, protocol.CapShell} }),
		"a grant of no session": w.grant(func(g *jws.Grant) { g.Session = "" }),
		"a grant that is over":  w.grant(func(g *jws.Grant) { g.IssuedAt, g.ExpiresAt = 1, 2 }),
	} {
		if said := stripped(w.text(w.ask(http.MethodGet, "/health", bearer, ""))); said != nobody {
			t.Errorf("%s is told %s", name, said)
		}
	}
	if w.asked != 0 {
		t.Error("the sandbox was asked")
	}
}

// A panel whose sandbox doesn't answer is told that it is down, and asks it no more
// often for that.
func TestHealthOfASandboxThatIsAway(t *testing.T) {
	w := newWorld(t)
	grant := w.grant(nil)
	for range 100 {
		said := w.text(w.ask(http.MethodGet, "/health", grant, ""))
		if !strings.Contains(said, `"status":"unhealthy"`) || !strings.Contains(said, `"session":null`) || !strings.Contains(said, `"chatEnabled":true`) {
			t.Fatal(said)
		}
	}
	if w.asked == 0 || w.asked > 10 { // one in 2 s, however slow the machine
		t.Errorf("the sandbox was asked %d times", w.asked)
	}
}
