package preview

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// A world is the previews of one relay, and a sandbox.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	previews  *Previews
	mux       *http.ServeMux // the public origin
	server    *httptest.Server
	client    *http.Transport

	mu   sync.Mutex
	skew time.Duration // guarded by mu: how far the previews' clock is ahead
}

// newWorld is a world whose sandbox serves handler.
func newWorld(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), mux: http.NewServeMux(), client: &http.Transport{DisableCompression: true}}
	agent, relay := tunneltest.Pair(t)
	relaytest.Answer(t, agent, func(in *tunnel.Incoming) { relaytest.HTTP(in, handler) })
	tunnels := &relaytest.Tunnels{}
	tunnels.Connect(relay)
	var err error
	grants := lifetime.New(lifetime.Options{Revoked: w.authority.Revoked, Now: w.now})
	w.previews, err = New(Options{
		Origin: "http://preview.localhost:8081", Framers: []string{"http://127.0.0.1:8080"},
		Keys: w.authority.Keys, Grants: grants, Tunnels: tunnels,
		Requests: reverseproxy.New(grants, prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Now: w.now,
	})
	must(t, err)
	w.previews.Register(w.mux)
	w.server = httptest.NewServer(w.previews.Handler())
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		w.server.Close()
	})
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.skew)
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew += d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// grant returns a grant that allows previews, after change.
func (w *world) grant(change ...func(*jws.Grant)) (*jws.Grant, string) {
	return w.authority.Grant(func(g *jws.Grant) {
		g.Caps = []protocol.Capability{protocol.CapPlugins}
		for _, f := range change {
			f(g)
		}
	})
}

// An opened is the answer to a request for a preview.
type opened struct {
	ID      string
	URL     string
	Expires time.Time `json:"expires_at"`
	Error   protocol.ErrorBody
	status  int
}

func (w *world) post(token, body string) (o opened) {
	w.t.Helper()
	r := httptest.NewRequest("POST", "/sessions/ses_1/previews", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r)
	must(w.t, json.Unmarshal(answer.Body.Bytes(), &o))
	o.status = answer.Code
	return o
}

// get asks a preview's host, without following where it leads.
func (w *world) get(target string, header ...string) *http.Response {
	w.t.Helper()
	return w.do("GET", target, nil, header...)
}

func (w *world) do(method, target string, body io.Reader, header ...string) *http.Response {
	w.t.Helper()
	u, err := url.Parse(target)
	must(w.t, err)
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+u.RequestURI(), body)
	must(w.t, err)
	r.Host = u.Host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.RoundTrip(r)
	must(w.t, err)
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func text(resp *http.Response) string {
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// open opens a preview and returns its host and cookie.
func (w *world) open(token string) (o opened, host, cookie string) {
	w.t.Helper()
	o = w.post(token, `{"port":3000,"path":"/app?x=1"}`)
	resp := w.get(o.URL)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/app?x=1" || len(resp.Cookies()) != 1 {
		w.t.Fatalf("%+v: %d %v", o, resp.StatusCode, resp.Header)
	}
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Domain != "" || c.Path != "/" || c.Secure {
		w.t.Errorf("cookie %+v", c)
	}
	u, err := url.Parse(o.URL)
	must(w.t, err)
	return o, "http://" + u.Host, c.Name + "=" + c.Value
}

// A link opens a preview once; from then on the application has the host to
// itself.
func TestPreview(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Add("Set-Cookie", "own=1; Path=/; Domain=preview.localhost; HttpOnly")
		h.Add("Set-Cookie", "fairlead_preview=planted; Path=/")
		h.Add("Set-Cookie", "FAIRLEAD_preview =planted; Path=/")
		h.Set("Strict-Transport-Security", "max-age=1")
		h.Set("Clear-Site-Data", "*")
		h.Set("Content-Security-Policy", "default-src 'self'")
		h.Set("Fairlead-Position", "1")
		h.Set("Content-Type", "text/html")
		fmt.Fprintf(rw, "%s %s cookie=%q auth=%q", r.Method, r.URL.RequestURI(), r.Header.Get("Cookie"), r.Header.Get("Authorization"))
	})
	_, token := w.grant()
	o, host, cookie := w.open(token)
	if w.get(o.URL).StatusCode != http.StatusUnauthorized {
		t.Error("the link opens it twice")
	}
	resp := w.do("POST", host+"/a%2Fb/c%20d?q=%zz;x", strings.NewReader("x"), "Cookie", "app=2; "+cookie+"; other=3", "Authorization", "Basic eA==")
	want := `POST /sessions/ses_1/preview/3000/a%2Fb/c%20d?q=%zz;x cookie="app=2; other=3" auth="Basic eA=="`
	if got := text(resp); got != want {
		t.Errorf("the sandbox saw %s\nwant %s", got, want)
	}
	h := resp.Header
	if set := h["Set-Cookie"]; len(set) != 1 || set[0] != "own=1; Path=/; HttpOnly" {
		t.Errorf("cookies %q", set)
	}
	for _, name := range []string{"Strict-Transport-Security", "Clear-Site-Data", "Fairlead-Position", "Access-Control-Allow-Origin", "Content-Disposition"} {
		if h.Get(name) != "" {
			t.Errorf("%s: %s", name, h.Get(name))
		}
	}
	policies := strings.Join(h["Content-Security-Policy"], ", ")
	if policies != "default-src 'self', frame-ancestors 'self' http://127.0.0.1:8080" || h.Get("Content-Type") != "text/html" {
		t.Errorf("%v", h)
	}
}

// Who may not see a preview, and what they are told.
func TestWhoMayNot(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "seen") })
	grant, token := w.grant()
	o, host, cookie := w.open(token)
	nobody := "http://" + strings.Repeat("a", idBytes) + ".preview.localhost:8081/"
	other := w.post(token, `{"port":3001}`)
	u, _ := url.Parse(other.URL)
	for name, c := range map[string]struct {
		target string
		header []string
		want   int
	}{
		"with the cookie":            {host + "/", []string{"Cookie", cookie}, 200},
		"among planted ones":         {host + "/", []string{"Cookie", "fairlead_preview=x; " + cookie}, 200},
		"its own page":               {host + "/", []string{"Cookie", cookie, "Origin", host, "Sec-Fetch-Site", "same-origin"}, 200},
		"led here":                   {host + "/", []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		"another preview's page":     {host + "/", []string{"Cookie", cookie, "Origin", "http://" + u.Host}, 403},
		"another preview's image":    {host + "/", []string{"Cookie", cookie, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		"no origin":                  {host + "/", []string{"Cookie", cookie, "Origin", "null"}, 403},
		"no cookie":                  {host + "/", nil, 401},
		"a wrong cookie":             {host + "/", []string{"Cookie", "fairlead_preview=x"}, 401},
		"a cookie beyond the others": {host + "/", []string{"Cookie", strings.Repeat("fairlead_preview=x; ", maxCookieValues) + cookie}, 401},
		"another preview's cookie":   {"http://" + u.Host + "/", []string{"Cookie", cookie}, 401},
		"an id of nothing":           {nobody, []string{"Cookie", cookie}, 404},
		"the bare host":              {"http://preview.localhost:8081/", []string{"Cookie", cookie}, 404},
		"another host":               {"http://127.0.0.1:8081/", []string{"Cookie", cookie}, 404},
		"a host below":               {strings.Replace(host, "http://", "http://x.", 1) + "/", []string{"Cookie", cookie}, 404},
		"a wrong ticket":             {host + openPath + "?ticket=x", nil, 401},
		"no ticket":                  {host + openPath, []string{"Cookie", cookie}, 401},
	} {
		resp := w.get(c.target, c.header...)
		body := text(resp)
		if resp.StatusCode != c.want || (body == "seen") != (c.want == 200) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
		if c.want != 200 && (!strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(body, "<p>")) {
			t.Errorf("%s: %v %s", name, resp.Header, body)
		}
	}
	if resp := w.do("TRACE", host+"/", nil, "Cookie", cookie); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("TRACE: %d", resp.StatusCode)
	}
	looked := w.post(token, `{"port":3000,"id":"`+o.ID+`"}`).URL
	for _, method := range []string{"HEAD", "POST"} {
		if resp := w.do(method, looked, nil); resp.StatusCode != http.StatusMethodNotAllowed || len(resp.Cookies()) != 0 {
			t.Errorf("a ticket by %s: %d", method, resp.StatusCode)
		}
	}
	if resp := w.get(looked); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("a ticket that was only looked at: %d", resp.StatusCode)
	}
	resp := w.get(host+"/", "Accept", "application/json")
	var answer struct{ Error protocol.ErrorBody }
	if err := json.Unmarshal([]byte(text(resp)), &answer); err != nil || resp.StatusCode != http.StatusUnauthorized || answer.Error.Name != "AuthError" {
		t.Errorf("as JSON: %d %+v %v", resp.StatusCode, answer, err)
	}
	w.authority.Revoked.Add(grant.ID)
	if resp := w.get(host+"/", "Cookie", cookie); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text(resp), "revoked") {
		t.Errorf("revoked: %d", resp.StatusCode)
	}
}

// Who may not have one made.
func TestCreateRefuses(t *testing.T) {
	w := newWorld(t, http.NotFound)
	_, token := w.grant()
	_, viewer := w.authority.Grant(nil)
	_, elsewhere := w.grant(func(g *jws.Grant) { g.Session = "ses_2" })
	_, forged := relaytest.NewAuthority(t).Grant(nil)
	for name, c := range map[string]struct {
		token, body string
		want        int
	}{
		"nothing wrong":     {token, `{"port":65535}`, 200},
		"no plugins":        {viewer, `{"port":3000}`, 403},
		"another session":   {elsewhere, `{"port":3000}`, 403},
		"forged":            {forged, `{"port":3000}`, 401},
		"no port":           {token, `{}`, 400},
		"port 0":            {token, `{"port":0}`, 400},
		"port 65536":        {token, `{"port":65536}`, 400},
		"port as text":      {token, `{"port":"3000"}`, 400},
		"an unknown member": {token, `{"port":3000,"host":"x"}`, 400},
		"away":              {token, `{"port":3000,"path":"https://evil.example/"}`, 400},
		"away, shorter":     {token, `{"port":3000,"path":"//evil.example/"}`, 400},
		"away, backslash":   {token, `{"port":3000,"path":"/\\evil.example/"}`, 400},
		"relative":          {token, `{"port":3000,"path":"x"}`, 400},
		"two lines":         {token, `{"port":3000,"path":"/\r\nSet-Cookie: a=b"}`, 400},
		"long":              {token, `{"port":3000,"path":"/` + strings.Repeat("x", maxPath) + `"}`, 400},
		"our own path":      {token, `{"port":3000,"path":"` + openPath + `"}`, 400},
		"an id of nothing":  {token, `{"port":3000,"id":"x"}`, 404},
	} {
		if o := w.post(c.token, c.body); o.status != c.want {
			t.Errorf("%s: %d %+v", name, o.status, o)
		}
	}
	off, err := New(Options{Keys: w.authority.Keys})
	must(t, err)
	w.previews, w.mux = off, http.NewServeMux()
	off.Register(w.mux)
	if o := w.post(token, `{"port":3000}`); o.status != http.StatusNotImplemented {
		t.Errorf("without previews: %+v", o)
	}
	for _, origin := range []string{"preview.localhost", "ftp://x", "http://", "http://x/", "http://x/y"} {
		if _, err := New(Options{Origin: origin}); err == nil {
			t.Errorf("%q is taken for an origin", origin)
		}
	}
}

// A preview ends with its grant, and goes on under another of the same user.
func TestRenewal(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "seen") })
	short := func(g *jws.Grant) { g.ExpiresAt = time.Now().Add(time.Minute).Unix() }
	grant, token := w.grant(short)
	o, host, cookie := w.open(token)
	if !o.Expires.Equal(grant.Expires()) {
		t.Errorf("expires at %s, its grant at %s", o.Expires, grant.Expires())
	}
	late := w.post(token, `{"port":3000,"id":"`+o.ID+`"}`)
	w.later(time.Minute)
	if resp := w.get(host+"/", "Cookie", cookie); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text(resp), "expired") {
		t.Errorf("after the grant's end: %d", resp.StatusCode)
	}
	if resp := w.get(late.URL); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("an old ticket: %d", resp.StatusCode)
	}
	renew := `{"port":3000,"id":"` + o.ID + `"}`
	_, bob := w.grant(func(g *jws.Grant) { g.Subject = "usr_bob" })
	_, alice := w.grant()
	if a := w.post(bob, renew); a.status != http.StatusNotFound {
		t.Errorf("somebody else's: %+v", a)
	}
	if a := w.post(alice, `{"port":22,"id":"`+o.ID+`"}`); a.status != http.StatusNotFound {
		t.Errorf("another port: %+v", a)
	}
	if a := w.post(alice, renew); a.status != http.StatusOK || a.ID != o.ID || a.URL == o.URL {
		t.Errorf("renewed: %+v", a)
	}
	if resp := w.get(host+"/", "Cookie", cookie); resp.StatusCode != http.StatusOK {
		t.Errorf("after renewal: %d", resp.StatusCode)
	}
	w.post(token, renew) // crosses: the shorter one doesn't count
	if resp := w.get(host+"/", "Cookie", cookie); resp.StatusCode != http.StatusOK {
		t.Errorf("after a crossing renewal: %d", resp.StatusCode)
	}
}

// There is an end to the previews of one user, by however many grants, and to
// the tickets and browsers of one preview.
func TestBounds(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {})
	grant, token := w.grant()
	w.post(token, `{"port":3000}`)
	for range maxPerUser - 1 {
		_, another := w.grant()
		w.post(another, `{"port":3000}`)
	}
	_, more := w.grant()
	if o := w.post(more, `{"port":3000}`); o.status != http.StatusTooManyRequests {
		t.Errorf("over the user's: %+v", o)
	}
	w.later(time.Until(grant.Expires()) + protocol.MaxGrantTTL + time.Minute)
	_, late := w.grant(func(g *jws.Grant) { g.ExpiresAt = g.IssuedAt + 600 })
	w.previews.registry.room(relaytest.User, w.now())
	if n := len(w.previews.registry.byID); n != 0 {
		t.Errorf("%d previews are kept", n)
	}
	w.later(-30 * time.Minute)
	o := w.post(late, `{"port":3000}`)
	for range maxTickets {
		w.post(late, `{"port":3000,"id":"`+o.ID+`"}`)
	}
	if n := len(w.previews.registry.byID[o.ID].tickets); n != maxTickets {
		t.Errorf("%d tickets", n)
	}
	if resp := w.get(o.URL); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the oldest ticket: %d", resp.StatusCode)
	}
	for range maxCookies + 1 {
		resp := w.get(w.post(late, `{"port":3000,"id":"`+o.ID+`"}`).URL)
		if resp.StatusCode != http.StatusSeeOther {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	if n := len(w.previews.registry.byID[o.ID].cookies); n != maxCookies {
		t.Errorf("%d cookies", n)
	}
}

// A WebSocket of the application passes, for its own pages only.
func TestWebSocket(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: fairlead_preview=x\r\n\r\n")
		buf.Flush()
		io.Copy(conn, buf)
	})
	grant, token := w.grant()
	_, host, cookie := w.open(token)
	dial := func(origin string) (net.Conn, *bufio.Reader, *http.Response) {
		conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /hmr HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nOrigin: %s\r\nCookie: %s\r\n\r\n",
			strings.TrimPrefix(host, "http://"), origin, cookie)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		must(t, err)
		return conn, reader, resp
	}
	if _, _, resp := dial("http://evil.example"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("of another origin: %d", resp.StatusCode)
	}
	conn, reader, resp := dial(host)
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Set-Cookie") != "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	io.WriteString(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	w.authority.Revoked.Add(grant.ID)
	if _, err := reader.ReadByte(); err == nil {
		t.Error("it goes on after the grant was revoked")
	}
}

// Where the application leads stays on its host, and elsewhere stays elsewhere.
func TestRedirects(t *testing.T) {
	var to string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", to)
		rw.WriteHeader(http.StatusFound)
	})
	_, token := w.grant()
	_, host, cookie := w.open(token)
	for given, want := range map[string]string{
		"/login":                             "/login",
		"next":                               "next",
		"https://id.example/authorize":       "https://id.example/authorize",
		"/sessions/ses_1/preview/3000/a/b":   "/a/b",
		"/sessions/ses_1/preview/3000//evil": "/evil",
		"/sessions/ses_1/preview/3001/a":     "/sessions/ses_1/preview/3001/a",
	} {
		to = given
		if resp := w.get(host+"/x/y", "Cookie", cookie); resp.Header.Get("Location") != want {
			t.Errorf("%s becomes %s, want %s", given, resp.Header.Get("Location"), want)
		}
	}
}

// In a frame of the console, another site, the cookie counts there alone.
func TestCookieOfAFrame(t *testing.T) {
	w := newWorld(t, http.NotFound)
	_, token := w.grant()
	resp := w.get(w.post(token, `{"port":3000}`).URL, "Sec-Fetch-Dest", "iframe", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	if len(resp.Cookies()) != 1 {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	if c := resp.Cookies()[0]; !c.HttpOnly || c.SameSite != http.SameSiteNoneMode || !c.Secure || !c.Partitioned || c.Domain != "" {
		t.Errorf("cookie %+v", c)
	}
}
