package chatapi

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// TestWhatOpensASocket: by credential first, the page's origin second, all of it
// before the upgrade.
// It is about weaknesses 9 and 20 in deploy/e2e/README.md.
func TestWhatOpensASocket(t *testing.T) {
	w := newWorld(t)
	grant, token := w.authority.Grant(caps("alice", protocol.CapChat))
	cookie := w.app(token)
	ticket := func() string { return w.ticket(token) }
	const protocols, origin, authorization = "Sec-WebSocket-Protocol", "Origin", "Authorization"
	spent := ticket()
	for _, tt := range []struct {
		name   string
		path   string
		header []string
		want   int
	}{
		{"the cookie", "/ws", []string{origin, w.origin, "Cookie", cookie}, 101},
		{"the cookie again", "/ws", []string{origin, w.origin, "Cookie", cookie}, 101},
		{"a ticket", "/ws", []string{origin, w.origin, protocols, "ticket." + spent}, 101},
		{"a spent ticket", "/ws", []string{origin, w.origin, protocols, "ticket." + spent}, 401},
		{"a ticket in the URL", "/ws?token=" + ticket(), []string{origin, w.origin}, 101},
		{"a ticket as bearer", "/ws", []string{origin, w.origin, authorization, "Bearer " + ticket()}, 101},
		{"a spent ticket as bearer", "/ws", []string{origin, w.origin, authorization, "Bearer " + spent}, 401},
		{"a ticket as something else", "/ws", []string{origin, w.origin, authorization, "Basic " + ticket()}, 401},
		{"two bearers", "/ws", []string{origin, w.origin, authorization, "Bearer " + ticket(), authorization, "Bearer " + ticket()}, 401},
		{"a grant", "/ws", []string{origin, w.origin, authorization, "Bearer " + token}, 401},
		{"a grant beside a good cookie", "/ws", []string{origin, w.origin, "Cookie", cookie, authorization, "Bearer " + token}, 401},
		{"a grant as ticket", "/ws", []string{origin, w.origin, protocols, "ticket." + token}, 401},
		{"the cookie's value as bearer", "/ws", []string{origin, w.origin, authorization, "Bearer " + strings.TrimPrefix(cookie, access.AppCookieName+"=")}, 401},
		{"a grant in the URL", "/ws?token=" + token, []string{origin, w.origin}, 401},
		{"a bad ticket beside a good cookie", "/ws?token=x", []string{origin, w.origin, "Cookie", cookie}, 401},
		{"an empty ticket beside a good cookie", "/ws?token=", []string{origin, w.origin, "Cookie", cookie}, 401},
		{"nothing", "/ws", []string{origin, w.origin}, 401},
		{"nothing, from nowhere", "/ws", nil, 401},
		{"a cookie that is none", "/ws", []string{origin, w.origin, "Cookie", access.AppCookieName + "=x"}, 401},
		{"the cookie without an origin", "/ws", []string{"Cookie", cookie}, 403},
		{"a ticket without an origin", "/ws", []string{protocols, "ticket." + ticket()}, 403},
		{"the cookie from another site", "/ws", []string{origin, "https://evil.example", "Cookie", cookie}, 403},
		{"a ticket from another site", "/ws", []string{origin, "https://evil.example", authorization, "Bearer " + ticket()}, 403},
		{"two origins", "/ws", []string{origin, w.origin, origin, w.origin, "Cookie", cookie}, 403},
		{"an extension", "/ws", []string{origin, "chrome-extension://abc", "Cookie", cookie}, 403},
		{"another site, the browser says", "/ws", []string{origin, w.origin, "Cookie", cookie, "Sec-Fetch-Site", "same-site"}, 403},
		{"the same, the browser says", "/ws", []string{origin, w.origin, "Cookie", cookie, "Sec-Fetch-Site", "same-origin"}, 101},
		{"a rebound host", "/ws", []string{origin, w.origin, "Cookie", cookie, "Host", "evil.example"}, 403},
		{"a proxy of another origin of ours", "/ws", []string{origin, "http://other.example", "Cookie", cookie}, 101},
		{"that, across origins", "/ws", []string{origin, "http://other.example", "Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, 401},
		{"a bearer, from another relay's page", "/ws", []string{origin, "http://other.example", "Sec-Fetch-Site", "cross-site", authorization, "Bearer " + ticket()}, 101},
		{"a ticket, from another relay's page", "/ws", []string{origin, "http://other.example", "Sec-Fetch-Site", "same-site", protocols, "ticket." + ticket()}, 101},
		{"another path", "/other", []string{origin, w.origin, "Cookie", cookie}, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			u, status := w.dial(tt.path, tt.header...)
			if status != tt.want {
				t.Errorf("status %d, want %d", status, tt.want)
			}
			if u != nil {
				u.say(subscribe(conv))
				u.acked(conv)
			}
		})
	}
	w.t = t
	early := ticket()
	w.authority.Revoked.Add(grant.ID)
	for name, header := range map[string][]string{
		"a ticket": {protocols, "ticket." + early}, "the cookie": {"Cookie", cookie},
	} {
		if _, status := w.dial("/ws", append(header, origin, w.origin)...); status != http.StatusUnauthorized {
			t.Errorf("%s of a revoked grant: %d", name, status)
		}
	}
	resp := w.ask(http.MethodGet, "/ws", "", "", "Origin", "chrome-extension://abc", "Upgrade", "websocket", "Connection", "Upgrade")
	if text := bodyOf(t, resp); resp.StatusCode != http.StatusForbidden || text != "forbidden origin" {
		t.Errorf("an extension: %d %q", resp.StatusCode, text)
	}
	if resp := w.ask(http.MethodGet, "/ws", "", "", "Cookie", cookie, "Origin", w.origin); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("no upgrade: %d", resp.StatusCode)
	}
}

func decode(t *testing.T, resp *http.Response, v any) {
	t.Helper()
	if text := bodyOf(t, resp); resp.StatusCode != http.StatusOK || protocol.UnmarshalObject([]byte(text), v) != nil {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
}

// TestAppCookie: what the cookie looks like, and who can read it.
func TestAppCookie(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	key := []byte(strings.Repeat("k", 32))
	w, same, other := newWorldWith(t, authority, key), newWorldWith(t, authority, key), newWorldWith(t, authority, nil)
	grant, token := authority.Grant(caps("alice", protocol.CapChat))
	resp := w.ask(http.MethodPost, "/app-session", token, "")
	c := resp.Cookies()[0]
	if c.Name != "fairlead_app" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.MaxAge > 300 || c.MaxAge < 290 {
		t.Errorf("%+v", c)
	}
	if text := bodyOf(t, resp); !strings.Contains(text, grant.Expires().UTC().Format(time.RFC3339)) {
		t.Error(text)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || strings.Contains(string(sealed), "usr_alice") || strings.Contains(string(sealed), token[:20]) {
		t.Errorf("%v, it can be read", err)
	}
	user := func(w *world, value string) int {
		return w.ask(http.MethodGet, "/api/auth/user", "", "", "Cookie", "fairlead_app="+value).StatusCode
	}
	if a, b, c := user(w, c.Value), user(same, c.Value), user(other, c.Value); a != 200 || b != 200 || c != 401 {
		t.Errorf("at the relay %d, at one with its secret %d, at another %d", a, b, c)
	}
	for i := range sealed { // each byte counts
		bad := slices.Clone(sealed)
		bad[i] ^= 1
		if i%16 == 0 && user(w, base64.RawURLEncoding.EncodeToString(bad)) != 401 {
			t.Errorf("byte %d doesn't count", i)
		}
	}
	if got := w.ask(http.MethodGet, "/api/auth/user", "", "", "Cookie", "fairlead_app=x", "Cookie", "fairlead_app="+c.Value).StatusCode; got != 200 {
		t.Errorf("beside a bad one: %d", got)
	}
	for name, tt := range map[string]struct {
		token, body string
		want        int
	}{
		"no grant":            {"", "", 401},
		"another session's":   {token, `{"session_id":"ses_2"}`, 403},
		"an id that is none":  {token, `{"session_id":"../x"}`, 400},
		"members of no use":   {token, `{"session_id":"ses_1","x":1}`, 400},
		"the grant's session": {token, `{"session_id":"ses_1"}`, 200},
	} {
		for _, path := range []string{"/app-session", "/chat-session"} {
			if resp := w.ask(http.MethodPost, path, tt.token, tt.body); resp.StatusCode != tt.want {
				t.Errorf("%s, %s: %d", path, name, resp.StatusCode)
			}
		}
	}
	w.authority.Revoked.Add(grant.ID)
	if code := user(w, c.Value); code != 401 {
		t.Errorf("of a revoked grant: %d", code)
	}
}

// TestRenewal: a fresh grant of the same person and session continues the cookie
// and its sockets; any other begins a new one.
// It is about weakness 21 in deploy/e2e/README.md.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	soon := func(who string, life time.Duration) func(*jws.Grant) {
		return func(g *jws.Grant) {
			caps(who, protocol.CapChat)(g)
			g.ExpiresAt = time.Now().Add(life).Unix()
		}
	}
	old, first := w.authority.Grant(soon("alice", time.Minute))
	_, second := w.authority.Grant(soon("alice", 5*time.Minute))
	_, stranger := w.authority.Grant(soon("bob", 5*time.Minute))
	cookie := w.app(first)
	dial := func(cookie string) *user {
		u, status := w.dial("/ws", append(w.own(), "Cookie", cookie)...)
		if u == nil {
			t.Fatal(status)
		}
		u.say(subscribe(conv))
		u.acked(conv)
		return u
	}
	u := dial(cookie)
	foreign := w.app(stranger, "Cookie", cookie)
	newer := w.app(second, "Cookie", cookie)
	late := dial(cookie) // it came with the old one
	if foreign == cookie || newer == cookie {
		t.Error("the cookie is the same")
	}
	w.authority.Revoked.Add(old.ID)
	u.sync()
	late.sync()
	resp := w.ask(http.MethodPost, "/api/auth/logout", "", "", append(w.own(), "Cookie", newer)...)
	if resp.StatusCode != 200 || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("%d %+v", resp.StatusCode, resp.Cookies())
	}
	u.closed(4401)
	late.closed(4401)
	if code := w.ask(http.MethodGet, "/api/auth/user", "", "", "Cookie", newer).StatusCode; code != 401 {
		t.Errorf("after logout: %d", code)
	}
	if code := w.ask(http.MethodGet, "/api/auth/user", "", "", "Cookie", foreign).StatusCode; code != 200 {
		t.Errorf("another person's: %d", code)
	}
}

// TestEndOfAGrant: a socket ends with its grant, unless it was renewed.
func TestEndOfAGrant(t *testing.T) {
	w := newWorld(t)
	grant, token := w.authority.Grant(caps("alice", protocol.CapChat))
	_, newer := w.authority.Grant(func(g *jws.Grant) {
		caps("alice", protocol.CapChat)(g)
		g.ExpiresAt = time.Now().Add(9 * time.Minute).Unix()
	})
	_, foreign := w.authority.Grant(caps("bob", protocol.CapChat))
	open := func() *user {
		u, _ := w.dial("/ws", append(w.own(), "Authorization", "Bearer "+w.ticket(token))...)
		return u
	}
	renewed, expiring := open(), open()
	renewed.say(`{"type":"chat.reauth","grant":"` + foreign + `"}`)
	renewed.refused("FORBIDDEN", "null", "")
	renewed.say(`{"type":"chat.reauth","grant":"` + newer + `"}`)
	renewed.say(`{"type":"chat.reauth","grant":"x"}`) // comes after it
	renewed.refused("FORBIDDEN", "null", "")
	w.authority.Ahead.Store(int64(6 * time.Minute))
	expiring.closed(4401)
	w.authority.Ahead.Store(0)
	revoked := open()
	began := time.Now()
	w.authority.Revoked.Add(grant.ID)
	revoked.closed(4401)
	t.Logf("revoked: closed after %v", time.Since(began))
	renewed.sync()
}

// TestSocketsPerPerson: who has as many as one may have gets no more.
func TestSocketsPerPerson(t *testing.T) {
	w := newWorld(t)
	w.api.Desk.SocketsPerPerson = 2
	for range 2 {
		w.join(caps("alice")).sync()
	}
	w.join(caps("alice")).closed(4429)
	w.join(caps("bob")).sync()
}

// TestLargeFrames: 1 MiB is taken, a byte more ends the socket.
func TestLargeFrames(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice"))
	frame := `{"type":"x","pad":"` + strings.Repeat("x", protocol.MaxChatFrame-len(`{"type":"x","pad":""}`)) + `"}`
	u.say(frame)
	u.refused("UNKNOWN_MESSAGE_TYPE", "null", "")
	u.say(frame + " ")
	u.closed(1009)
}

// TestManySubscriptions: entries beyond the limit are ignored and counted.
func TestManySubscriptions(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice"))
	var entries strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&entries, `{"sessionId":"unknown%d","lastSeq":1e308},`, i)
	}
	u.say(`{"type":"chat.subscribe","sessions":[` + strings.Repeat(`null,{"sessionId":""},`, 100) + entries.String() + `7]}`)
	for i := range protocol.MaxChatFollowed - 200 {
		u.acked(fmt.Sprintf("unknown%d", i))
	}
	u.say(`{"type":"x"}`)
	u.refused("UNKNOWN_MESSAGE_TYPE", "null", "")
	if n := ignored(t, w.api.Metrics); n != 100*2+10_000+1-protocol.MaxChatFollowed {
		t.Errorf("%v entries were counted as ignored", n)
	}
}

// ignored returns how many entries of subscriptions were ignored.
func ignored(t *testing.T, m *Metrics) float64 {
	t.Helper()
	var now dto.Metric
	if err := m.MarksIgnored.Write(&now); err != nil {
		t.Fatal(err)
	}
	return now.GetCounter().GetValue()
}

// TestCreate: the seed's answers, and the command behind them.
func TestCreate(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(caps("alice", protocol.CapChat))
	_, viewer := w.authority.Grant(caps("carol"))
	cookie := w.app(token)
	post := func(body string, header ...string) (int, string) {
		resp := w.ask(http.MethodPost, "/api/providers/sessions", "", body, append([]string{"Cookie", cookie}, header...)...)
		return resp.StatusCode, bodyOf(t, resp)
	}
	for body, want := range map[string]string{
		`{"provider":" X ","projectPath":""}`: `{"error":{"code":"UNSUPPORTED_PROVIDER","message":"Unsupported provider \"x\".","name":"RequestError"},"success":false}`,
		`{}`:                                  `{"error":{"code":"UNSUPPORTED_PROVIDER","message":"Unsupported provider \"\".","name":"RequestError"},"success":false}`,
		`{"provider":"claude"}`:               `{"error":{"code":"PROJECT_PATH_REQUIRED","message":"projectPath is required.","name":"RequestError"},"success":false}`,
		`{"provider":"claude","projectPath":" "}`: `{"error":{"code":"PROJECT_PATH_REQUIRED","message":"projectPath is required.","name":"RequestError"},"success":false}`,
	} {
		if code, text := post(body, w.own()...); code != 400 || text != want {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	code, text := post(`{"provider":" Claude ","projectPath":" /workspace ","initialMessage":" Fix the\nbug in main.go"}`, w.own()...)
	if code != 201 || !strings.Contains(text, `"provider":"claude"`) || !strings.Contains(text, `"projectPath":"/workspace"`) || !strings.Contains(text, `"sessionName":"Fix the bug in"`) {
		t.Errorf("%d %s", code, text)
	}
	done := w.ops()[0]
	var create struct {
		Kind, Conversation, Provider, ProjectPath, Title string
	}
	if err := protocol.UnmarshalObject(done.Op, &create); err != nil || create.Kind != "chat.create" || len(create.Conversation) != 36 || create.Conversation[14] != '4' ||
		create.Title != "Fix the bug in" || !strings.Contains(text, create.Conversation) {
		t.Errorf("%s, %v", done.Op, err)
	}
	if code, _ := post(`{"provider":"claude","projectPath":"/w"}`); code != 403 {
		t.Errorf("without an origin: %d", code)
	}
	if code, text := post("[]", w.own()...); code != 400 {
		t.Errorf("no object: %d %s", code, text)
	}
	if code := w.ask(http.MethodPost, "/api/providers/sessions", viewer, `{}`, w.own()...).StatusCode; code != 403 {
		t.Errorf("by a viewer: %d", code)
	}
	w.refuses(protocol.ChatFault{Code: protocol.ChatForbidden, Text: "not below the workspace"})
	if code, text := post(`{"provider":"claude","projectPath":"/etc"}`, w.own()...); code != 403 || !strings.Contains(text, `"code":"FORBIDDEN","message":"not below the workspace"`) {
		t.Errorf("%d %s", code, text)
	}
}

// TestAPI: what reaches the sandbox, and what doesn't.
func TestAPI(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(caps("alice", protocol.CapChat))
	_, viewer := w.authority.Grant(caps("carol"))
	cookie := w.app(token)
	asked := make(chan *http.Request, 8)
	w.serve = func(answer http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case asked <- r:
		default:
			t.Error("more requests than were made")
		}
		if strings.HasSuffix(r.URL.Path, "/image") {
			answer.Header().Set("Content-Type", "image/svg+xml")
		} else {
			answer.Header().Set("Content-Type", "application/json; charset=utf-8")
		}
		answer.Header().Set("Set-Cookie", "fairlead_app=x")
		io.WriteString(answer, "{}")
	}
	resp := w.ask(http.MethodGet, "/api/projects/a%20b/sessions?limit=5&token=secret", "", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	r := <-asked
	if resp.StatusCode != 200 || r.URL.Path != "/sessions/ses_1/api/projects/a b/sessions" || r.URL.RawQuery != "limit=5" || r.Header.Get("X-Grant") != token {
		t.Errorf("%d, %s", resp.StatusCode, r.URL)
	}
	if r.Header.Get("Cookie")+r.Header.Get("Authorization")+r.Header.Get("Origin") != "" {
		t.Errorf("the sandbox gets %v", r.Header)
	}
	if h := resp.Header; h.Get("Set-Cookie") != "" || h.Get("Content-Disposition") != "" || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Content-Security-Policy") != "sandbox" || !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
		t.Errorf("%v", h)
	}
	resp = w.ask(http.MethodGet, "/api/image", token, "")
	if <-asked; resp.Header.Get("Content-Disposition") != "attachment" {
		t.Errorf("an image: %v", resp.Header)
	}
	for _, tt := range []struct {
		name, method, path, token string
		header                    []string
		want                      int
	}{
		{"a change by the cookie", "PUT", "/api/providers/sessions/x", "", append(w.own(), "Cookie", cookie), 200},
		{"a change by a grant", "DELETE", "/api/providers/sessions/x", token, w.own(), 200},
		{"a view by a viewer", "GET", "/api/projects", viewer, nil, 200},
		{"a change by a viewer", "POST", "/api/providers/sessions/x/restore", viewer, w.own(), 403},
		{"a change by a grant, by no page", "PUT", "/api/x", token, nil, 200},
		{"a change without an origin", "PUT", "/api/x", "", []string{"Cookie", cookie}, 403},
		{"a change by a grant from another site", "PUT", "/api/x", token, []string{"Origin", "https://evil.example"}, 403},
		{"a change from another site", "PUT", "/api/x", "", []string{"Cookie", cookie, "Origin", "https://evil.example"}, 403},
		{"a view from another site", "GET", "/api/x", "", []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, 403},
		{"a view from the address bar", "GET", "/api/x", "", []string{"Cookie", cookie, "Sec-Fetch-Site", "none"}, 403},
		{"a view from another relay's page", "GET", "/api/x", token, []string{"Origin", "http://other.example", "Sec-Fetch-Site", "cross-site"}, 200},
		{"nobody", "GET", "/api/x", "", nil, 401},
		{"a token in the URL", "GET", "/api/x?token=" + token, "", nil, 401},
		{"a rebound host", "GET", "/api/x", "", []string{"Cookie", cookie, "Host", "evil.example"}, 403},
		{"out of it", "GET", "/api/%2e%2e/files", token, nil, 404},
		{"a hidden slash", "GET", "/api/a%2F..%2Fb", token, nil, 404},
		{"login", "POST", "/api/auth/login", "", w.own(), 501},
		{"register", "POST", "/api/auth/register", "", w.own(), 501},
		{"logout without an origin", "POST", "/api/auth/logout", "", []string{"Cookie", cookie}, 403},
		{"a method that there isn't", "DELETE", "/api/auth/status", "", w.own(), 405},
	} {
		resp := w.ask(tt.method, tt.path, tt.token, "", tt.header...)
		if resp.StatusCode != tt.want {
			t.Errorf("%s: %d %s", tt.name, resp.StatusCode, bodyOf(t, resp))
		}
		if tt.want == 200 && resp.StatusCode == 200 { // it has been there before it is answered
			<-asked
		} else if len(asked) > 0 {
			t.Errorf("%s: it has reached the sandbox", tt.name)
			<-asked
		}
	}
	for _, tt := range []struct {
		header []string
		want   string
	}{
		{nil, `{"isAuthenticated":false,"needsSetup":false}`}, {[]string{"Cookie", cookie}, `{"isAuthenticated":true,"needsSetup":false}`},
	} {
		if text := bodyOf(t, w.ask(http.MethodGet, "/api/auth/status", "", "", tt.header...)); text != tt.want {
			t.Error(text)
		}
	}
	if text := bodyOf(t, w.ask(http.MethodGet, "/api/auth/user", token, "")); text != `{"user":{"id":"usr_alice","username":"alice"}}` {
		t.Error(text)
	}
}
