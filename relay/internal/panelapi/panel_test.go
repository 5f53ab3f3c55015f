package panelapi

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func asClose(err error, end *websocket.CloseError) bool { return errors.As(err, end) }

// The seed's panel, frame by frame (chat-and-shell-2.md 2.5): POST /pty-session
// without a body, GET /claude-available, the socket by its cookie, a text frame with
// the size, one byte 0x0A. No program before that byte.
func TestTheSeedsPanel(t *testing.T) {
	w := newWorld(t)
	resp := w.ask(http.MethodPost, "/pty-session", w.grant(nil), "")
	if resp.Header.Get("Access-Control-Allow-Origin") != ours || resp.Header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("%v", resp.Header)
	}
	m := w.minted(resp)
	at, _ := url.Parse(w.origin)
	if strconv.Itoa(m.TerminalPort) != at.Port() || m.ExpiresAt <= time.Now().UnixMilli() || m.ExpiresAt > time.Now().Add(protocol.CookieTTL).UnixMilli() {
		t.Errorf("%+v", m)
	}
	if c := m.cookie; c.Name != "gstack_pty" || len(c.Value) != 43 || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" ||
		c.Domain != "" || c.Secure || c.MaxAge < 290 || c.MaxAge > 1800 {
		t.Errorf("%+v", c)
	}
	// What Chromium sends with the WebSocket of an extension's page.
	if c := resp.Cookies()[1]; c.Name != "gstack_pty_socket" || c.Value != m.cookie.Value || !c.HttpOnly || c.SameSite != http.SameSiteNoneMode ||
		c.Path != "/" || c.Domain != "" || !c.Secure || c.MaxAge != m.cookie.MaxAge {
		t.Errorf("%+v", c)
	}
	// Chromium sends no Origin with an extension's GET.
	for _, origin := range []string{ours, ""} {
		said := w.text(w.ask(http.MethodGet, "/claude-available", "", "", "Cookie", "gstack_pty="+m.cookie.Value, "Origin", origin))
		if !strings.Contains(said, `"available":true`) || !strings.Contains(said, `"path":"/usr/bin/claude"`) {
			t.Error(said)
		}
	}
	if resp := w.ask(http.MethodGet, "/claude-available", "", "", "Cookie", "gstack_pty="+m.cookie.Value, "Origin", another); resp.StatusCode != 401 {
		t.Errorf("another extension: %d", resp.StatusCode)
	}
	p := w.dial(m, false, "")
	p.send(`{"type":"resize","cols":101,"rows":31}`)
	w.await("a terminal", func() bool { return w.see(m.SessionID, nil) })
	w.see(m.SessionID, func(t1 *terminal) {
		c := t1.create
		if c.Command != "claude" || len(c.Args) > 0 || c.Spawn != op.SpawnLazy || c.OnDetach != op.DetachClose || c.Cols != 101 || c.Rows != 31 ||
			c.CreatorID != relaytest.User {
			t.Errorf("%+v", c)
		}
		if t1.begunAt != [2]int{} {
			t.Error("it began with a size")
		}
	})
	p.key("\n")
	p.output("\n")
	p.key("hello")
	p.output("hello")
	w.see(m.SessionID, func(t1 *terminal) {
		if t1.begunAt != [2]int{101, 31} || string(t1.typed) != "\nhello" {
			t.Errorf("began at %v, typed %q", t1.begunAt, t1.typed)
		}
	})
	p.key("exit 0")
	if code, reason, _ := p.closed(); code != 1000 || reason != "pty exited" {
		t.Errorf("closed with %d %q", code, reason)
	}
	if n := w.done(op.KindPTYCreate); n != 1 {
		t.Errorf("%d terminals", n)
	}
}

// A terminal whose program isn't there: the text frame that the seed's panel knows,
// then close 4404. Only if the sandbox says so, too.
func TestClaudeNotFound(t *testing.T) {
	for missing, want := range map[bool]int{true: 4404, false: 1000} {
		w := newWorld(t)
		w.noClaude = missing
		m := w.mint(nil)
		p := w.dial(m, false, "")
		p.key("missing")
		code, reason, last := p.closed()
		if code != want || missing != strings.Contains(last, `"code":"CLAUDE_NOT_FOUND"`) || missing && reason != "claude not found" {
			t.Errorf("missing %v: %d %q after %s", missing, code, reason, last)
		}
		said := w.text(w.ask(http.MethodGet, "/claude-available", w.grant(nil), ""))
		if missing && (!strings.Contains(said, `"available":false`) || !strings.Contains(said, `"install_url":"`+installURL+`"`)) {
			t.Error(said)
		}
	}
}

// Nothing but a byte begins anything: not sizes, not garbage, not an empty frame.
func TestGarbageStartsNothing(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	p := w.dial(m, false, "")
	p.key("")
	for _, text := range []string{
		`{"type":"resize","cols":0,"rows":-1}`, `{"type":"resize"}`, `{"type":"resize","cols":"a","rows":null}`, `{"type":"resize","cols":1e99,"rows":1}`,
		`{"type":"tabSwitch"}`, `{"type":"tabSwitch","tabId":"x"}`, `{"type":"tabState","active":null}`, `{"type":"keepalive"}`, `{"type":"pong"}`,
		`{"type":"input","data":"x"}`, `{"type":"reauth","grant":"x"}`, `{"type":"spawn"}`, `{"type":7}`, `[]`, `null`, `7`, `"start"`, `{`, ``, "\x00",
		`{"type":"resize","cols":90,"rows":20}`, `{"type":"resize","cols":91.7,"rows":21}`,
	} {
		p.send(text)
	}
	p.send(`{"type":"ping","ts":5}`)
	if pong := p.hear("pong"); pong["ts"] != float64(5) {
		t.Errorf("%v", pong)
	}
	w.await("the size", func() (done bool) {
		w.see(m.SessionID, func(t1 *terminal) { done = t1.cols == 91 && t1.rows == 21 })
		return done
	})
	w.see(m.SessionID, func(t1 *terminal) {
		if t1.begunAt != [2]int{} || len(t1.typed) > 0 || t1.create.Cols != minSide || t1.create.Rows != minSide {
			t.Errorf("%+v", t1)
		}
	})
	p.key("x")
	p.output("x")
}

// What opens what: each credential in the others' place, before the upgrade.
func TestTokensAreSinglePurpose(t *testing.T) {
	w := newWorld(t)
	m, grant := w.mint(nil), w.grant(nil)
	cookie := "gstack_pty=" + m.cookie.Value
	open := "gstack_pty_socket=" + m.cookie.Value
	for name, c := range map[string]struct {
		header []string
		want   int
		body   string
	}{
		"nothing":                      {nil, 401, "unauthorized"},
		"a grant as the cookie":        {[]string{"Cookie", "gstack_pty=" + grant}, 401, "unauthorized"},
		"a grant as the token":         {[]string{"Sec-WebSocket-Protocol", "gstack-pty." + grant}, 401, "unauthorized"},
		"a cookie as the token":        {[]string{"Sec-WebSocket-Protocol", "gstack-pty." + m.cookie.Value}, 401, "unauthorized"},
		"a token as the cookie":        {[]string{"Cookie", "gstack_pty=" + m.AttachToken}, 401, "unauthorized"},
		"no token beside the cookie":   {[]string{"Cookie", cookie, "Sec-WebSocket-Protocol", "gstack-pty."}, 401, "unauthorized"},
		"a bad token beside it":        {[]string{"Cookie", cookie, "Sec-WebSocket-Protocol", "gstack-pty.x"}, 401, "unauthorized"},
		"an unknown cookie":            {[]string{"Cookie", "gstack_pty=" + strings.Repeat("A", 43)}, 401, "unauthorized"},
		"an extension that isn't ours": {[]string{"Cookie", cookie, "Origin", foreign}, 403, "forbidden origin"},
		"another listed extension":     {[]string{"Cookie", cookie, "Origin", another}, 401, "unauthorized"},
		"a page":                       {[]string{"Cookie", cookie, "Origin", "http://evil.example"}, 403, ""},
		"a page, as other sites' come": {[]string{"Cookie", open, "Origin", "http://evil.example"}, 403, ""},
		"the same, ours":               {[]string{"Cookie", open, "Origin", w.origin}, 401, ""},
		"the same, of another one":     {[]string{"Cookie", open, "Origin", another}, 401, "unauthorized"},
		"a page of ours":               {[]string{"Cookie", cookie, "Origin", w.origin}, 401, ""},
		"no origin":                    {[]string{"Cookie", cookie, "Origin", ""}, 401, ""},
		"no upgrade":                   {[]string{"Cookie", cookie, "Upgrade", ""}, 400, "bad"},
		"a grant in Authorization":     {[]string{"Cookie", cookie, "Authorization", "Bearer " + grant}, 401, ""},
		"a chat ticket that is none":   {[]string{"Cookie", cookie, "Sec-WebSocket-Protocol", "ticket.x"}, 401, ""},
	} {
		if code, body := w.upgrade(c.header...); code != c.want || c.body != "" && body != c.body {
			t.Errorf("%s: %d %q, want %d %q", name, code, body, c.want, c.body)
		}
	}
	for name, resp := range map[string]*http.Response{
		"?token= with a grant":          w.ask(http.MethodGet, "/ws?token="+grant, "", "", "Upgrade", "websocket", "Connection", "Upgrade"),
		"the cookie at /pty-session":    w.ask(http.MethodPost, "/pty-session", "", "", "Cookie", cookie),
		"the socket's at /pty-session":  w.ask(http.MethodPost, "/pty-session", "", "", "Cookie", open),
		"the cookie as a bearer":        w.ask(http.MethodPost, "/pty-session", m.cookie.Value, ""),
		"the token as a bearer":         w.ask(http.MethodPost, "/pty-session", m.AttachToken, ""),
		"the cookie at reattach":        w.ask(http.MethodPost, "/pty-session/reattach", "", `{"sessionId":"pty_x"}`, "Cookie", cookie),
		"the cookie at restart":         w.ask(http.MethodPost, "/pty-restart", "", `{}`, "Cookie", cookie),
		"the cookie at dispose":         w.ask(http.MethodPost, "/pty-dispose", "", `{"sessionId":"pty_x"}`, "Cookie", cookie),
		"the cookie as dispose's token": w.ask(http.MethodPost, "/pty-dispose", "", `{"sessionId":"pty_x","authToken":"`+m.cookie.Value+`"}`),
		"a spent look":                  w.ask(http.MethodGet, "/claude-available", "", "", "Cookie", "gstack_pty=x"),
	} {
		if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	if body := w.text(w.ask(http.MethodPost, "/pty-session", "", "")); body != `{"error":"Unauthorized"}` {
		t.Error(body)
	}
	w.dial(m, false, "") // none of them has spent it
}

// What a grant must carry, and what else a new terminal needs.
func TestMintRefuses(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(*jws.Grant)
		want   int
	}{
		"view alone":  {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView} }, 403},
		"no shell":    {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView, protocol.CapControl} }, 403},
		"no control":  {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView, protocol.CapShell} }, 403},
		"no session":  {func(g *jws.Grant) { g.Session = "" }, 400},
		"expired":     {func(g *jws.Grant) { g.IssuedAt -= 120; g.ExpiresAt = time.Now().Unix() - 1 }, 401},
		"one to view": {func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }, 200}, // the terminal's own check comes with the socket
	} {
		if resp := w.ask(http.MethodPost, "/pty-session", w.grant(c.change), ""); resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
	w.tunnels.Connect(nil)
	resp := w.ask(http.MethodPost, "/pty-session", w.grant(nil), "")
	if body := w.text(resp); resp.StatusCode != http.StatusServiceUnavailable || body != `{"error":"terminal-agent not ready"}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A JSON body is DESIGN §9's, also where extensions are listed.
func TestPTYSessionWithABody(t *testing.T) {
	w := newWorld(t)
	resp := w.ask(http.MethodPost, "/pty-session", w.grant(nil), `{"session_id":"ses_1","pty_id":"pty_1"}`)
	if body := w.text(resp); resp.StatusCode != 200 || !strings.Contains(body, `"ws_url"`) || resp.Cookies()[0].Name != "fairlead_pty" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp := w.ask(http.MethodPost, "/pty-session", w.grant(nil), `{}`); resp.StatusCode != 400 {
		t.Errorf("%d", resp.StatusCode)
	}
}

// A cookie opens one socket, and is dead with it; so is the token beside it.
func TestACookieOpensOneSocket(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	p := w.dial(m, false, "")
	spent := func(when string) {
		t.Helper()
		for _, header := range [][]string{{"Cookie", "gstack_pty=" + m.cookie.Value}, {"Sec-WebSocket-Protocol", "gstack-pty." + m.AttachToken}} {
			if code, body := w.upgrade(header...); code != 401 || body != "unauthorized" {
				t.Errorf("%s, %s: %d %q", when, header[0], code, body)
			}
		}
	}
	spent("while it is open")
	p.key("a")
	p.output("a")
	p.Close(websocket.StatusNormalClosure, "")
	w.await("the viewer to leave", func() bool { return w.gauge("fairlead_viewers") == 0 && w.gauge("fairlead_panel_sockets") == 0 })
	spent("afterwards")
	if n := w.done(op.KindPTYClose); n != 0 {
		t.Errorf("%d commands to close: the sandbox does that", n)
	}
}

// The console still sees an extension's chat ticket open the chat, and nothing else.
func TestAnExtensionsChatTicket(t *testing.T) {
	w := newWorld(t)
	resp := w.ask(http.MethodPost, "/chat-session", w.grant(nil), `{"session_id":"ses_1"}`)
	body := w.text(resp)
	_, rest, _ := strings.Cut(body, `"ticket":"`)
	ticket, _, _ := strings.Cut(rest, `"`)
	if code, echo := w.upgrade("Sec-WebSocket-Protocol", "ticket."+ticket); code != 101 || echo != "ticket."+ticket {
		t.Errorf("%d %q after %s", code, echo, body)
	}
}

// gauge returns a metric's value.
func (w *world) gauge(name string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	w.t.Fatalf("no %s", name)
	return 0
}

// The seed's panel in Chromium: the cookie that is SameSite=Strict doesn't come with
// its WebSocket, the other one does, and either spends both.
func TestCookieThatComesWithSockets(t *testing.T) {
	w := newWorld(t)
	m := w.mint(nil)
	strict := m.cookie.Name
	m.cookie.Name = "gstack_pty_socket"
	p := w.dial(m, false, "")
	p.key("\n")
	p.output("\n")
	for _, name := range []string{strict, m.cookie.Name} {
		if code, _ := w.upgrade("Cookie", name+"="+m.cookie.Value); code != 401 {
			t.Errorf("%s a second time: %d", name, code)
		}
	}
}
