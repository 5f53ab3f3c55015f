package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func bob(g *jws.Grant) { g.Subject, g.Name = "usr_bob", "Bob" }

func TestPTYSession(t *testing.T) {
	for name, c := range map[string]struct {
		start  func(*httptest.Server)
		scheme string
	}{
		"http":  {(*httptest.Server).Start, "ws"},
		"https": {(*httptest.Server).StartTLS, "wss"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.start)
			began := time.Now()
			resp := w.ptySession(w.grant(nil), `{"session_id":"ses_1","pty_id":"pty_1"}`)
			var answer struct {
				URL     string    `json:"ws_url"`
				Ticket  string    `json:"ticket"`
				Expires time.Time `json:"expires_at"`
			}
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			_, host, _ := strings.Cut(w.server.URL, "://")
			if want := c.scheme + "://" + host + w.path; answer.URL != want || len(answer.Ticket) < 26 {
				t.Errorf("%+v, want %s", answer, want)
			}
			if time.Until(answer.Expires) > protocol.TicketTTL || answer.Expires.Sub(began) < protocol.TicketTTL-time.Second {
				t.Errorf("the ticket is good until %v", answer.Expires)
			}
			cookie := resp.Cookies()[0]
			if cookie.Name != access.CookieName || cookie.Path != w.path || !cookie.HttpOnly || cookie.Domain != "" ||
				cookie.SameSite != http.SameSiteStrictMode || cookie.Secure != (c.scheme == "wss") || cookie.Value == answer.Ticket {
				t.Errorf("%+v", cookie)
			}
		})
	}
}

func TestPTYSessionRefuses(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	good := `{"session_id":"ses_1","pty_id":"pty_1"}`
	for name, c := range map[string]struct {
		token, body string
		want        int
	}{
		"no grant":         {"", good, 401},
		"not a grant":      {"a.b.c", good, 401},
		"another session":  {w.grant(func(g *jws.Grant) { g.Session = "ses_2" }), good, 403},
		"another terminal": {w.grant(func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }), good, 403},
		"may not view":     {w.grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapControl} }), good, 403},
		"no ids":           {w.grant(nil), `{}`, 400},
		"not an id":        {w.grant(nil), `{"session_id":"ses_1","pty_id":"../x"}`, 400},
		"not JSON":         {w.grant(nil), `x`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			if resp := w.ptySession(c.token, c.body); resp.StatusCode != c.want || len(resp.Cookies()) != 0 {
				t.Errorf("status %d, want %d; cookies %v", resp.StatusCode, c.want, resp.Cookies())
			}
		})
	}
	if resp := w.ptySession(w.grant(nil), good, "Origin", "https://evil.example"); resp.StatusCode != 403 {
		t.Errorf("from another origin: status %d", resp.StatusCode)
	}
	if n := w.timed(); n != 0 {
		t.Errorf("%d refusals are timed", n)
	}
	w.ptySession(w.grant(nil), good)
	if n := w.timed(); n != 1 {
		t.Errorf("%d tickets are timed, of 1", n)
	}
}

// All that can be refused is refused before the upgrade, with the kind's text.
func TestRefusedBeforeTheUpgrade(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	ticket := func(pty protocol.PTYID) string {
		secret, _ := w.ticket(w.grant(nil), pty)
		return protocol.SubprotocolTicket + secret
	}
	with := func(r *http.Request, header string, values ...string) *http.Request {
		delete(r.Header, header)
		if len(values) > 0 {
			r.Header[header] = values
		}
		return r
	}
	cookie := func(pty protocol.PTYID) string {
		_, secret := w.ticket(w.grant(nil), pty)
		return access.CookieName + "=" + secret
	}
	host := w.socket(w.path, ticket("pty_1"))
	host.Host = "rebound.example"
	elsewhere := strings.Replace(w.path, "pty_1", "pty_2", 1)
	for name, c := range map[string]struct {
		r    *http.Request
		want protocol.Kind
	}{
		"foreign host":                  {host, protocol.KindForbidden},
		"foreign origin":                {with(w.socket(w.path, ticket("pty_1")), "Origin", "https://evil.example"), protocol.KindForbidden},
		"no origin":                     {with(w.socket(w.path, ticket("pty_1")), "Origin"), protocol.KindForbidden},
		"two origins":                   {with(w.socket(w.path, ticket("pty_1")), "Origin", w.server.URL, w.server.URL), protocol.KindForbidden},
		"nothing":                       {w.socket(w.path), protocol.KindUnauthenticated},
		"another terminal's ticket":     {w.socket(w.path, ticket("pty_2")), protocol.KindUnauthenticated},
		"another terminal's cookie":     {with(w.socket(w.path), "Cookie", cookie("pty_2")), protocol.KindUnauthenticated},
		"bad ticket, good cookie":       {with(w.socket(w.path, "ticket.x"), "Cookie", cookie("pty_1")), protocol.KindUnauthenticated},
		"empty ticket, good cookie":     {with(w.socket(w.path, "ticket."), "Cookie", cookie("pty_1")), protocol.KindUnauthenticated},
		"a grant for a ticket":          {w.socket(w.path, "ticket."+w.grant(nil)), protocol.KindUnauthenticated},
		"no such terminal":              {w.socket(elsewhere, ticket("pty_2")), protocol.KindNotFound},
		"no client":                     {w.socket(w.path+"?client=", ticket("pty_1")), protocol.KindInvalid},
		"a client too long":             {w.socket(w.path+"?client="+strings.Repeat("x", 65), ticket("pty_1")), protocol.KindInvalid},
		"a client not in UTF-8":         {w.socket(w.path+"?client=%ff", ticket("pty_1")), protocol.KindInvalid},
		"no such size":                  {w.socket(w.path+"?size=vague", ticket("pty_1")), protocol.KindInvalid},
		"no such mode":                  {w.socket(w.path+"?mode=vague", ticket("pty_1")), protocol.KindInvalid},
		"exact without record":          {w.socket(w.path+"?mode=exact", ticket("pty_1")), protocol.KindForbidden},
		"not an id":                     {w.socket(strings.Replace(w.path, "pty_1", "pty%20", 1), ticket("pty_1")), protocol.KindInvalid},
		"a ticket in the address alone": {w.socket(w.path + "?ticket=" + strings.TrimPrefix(ticket("pty_1"), "ticket.")), protocol.KindUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := w.status(c.r)
			want := `{"error":{"message":"` + c.want.Text() + `","name":"` + c.want.Name() + `"}}`
			if status != c.want.Status() || body != want {
				t.Errorf("%d %s, want %d %s", status, body, c.want.Status(), want)
			}
		})
	}
}

func TestATicketOpensOneSocket(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	secret, cookie := w.ticket(w.grant(nil), "pty_1")
	ticket := protocol.SubprotocolTicket + secret

	plain := w.socket(w.path, ticket) // a page load, a link preview: not an upgrade
	plain.Header.Del("Upgrade")
	if status, _ := w.status(plain); status != http.StatusBadRequest {
		t.Errorf("status %d without an upgrade", status)
	}
	if status, selected := w.status(w.socket(w.path, ticket)); status != 101 || selected != ticket {
		t.Fatalf("%d, %q", status, selected)
	}
	if status, _ := w.status(w.socket(w.path, ticket)); status != http.StatusUnauthorized {
		t.Errorf("status %d for a used ticket", status)
	}
	again := w.socket(w.path)
	again.Header.Set("Cookie", access.CookieName+"="+cookie)
	if status, _ := w.status(again); status != http.StatusUnauthorized {
		t.Errorf("status %d for the cookie of a used ticket", status)
	}
	_, cookie = w.ticket(w.grant(nil), "pty_1")
	again.Header.Set("Cookie", access.CookieName+"="+cookie)
	if status, selected := w.status(again); status != 101 || selected != "" {
		t.Errorf("the cookie alone: %d, %q", status, selected)
	}
}

func TestATerminal(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){
		"http": (*httptest.Server).Start, "https": (*httptest.Server).StartTLS,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, start)
			c, watcher := w.dial(nil), w.dial(bob)
			if m := c.text(protocol.ServerControlState); m["controller"] != string(relaytest.User) {
				t.Errorf("%v", m)
			}
			c.text(protocol.ServerAttached)
			watcher.text(protocol.ServerAttached)
			paste := strings.Repeat("0123456789abcdef", 4<<10)[:protocol.MaxBrowserMessage]
			c.send(websocket.MessageBinary, paste)
			for _, x := range []*client{c, watcher} {
				if got := x.output(len(paste)); string(got) != paste {
					t.Errorf("%d other bytes came back", len(got))
				}
			}
			watcher.send(websocket.MessageBinary, "x")
			if m := watcher.text(protocol.ServerInputRefused); m["reason"] != string(protocol.RefusedNotController) {
				t.Errorf("%v", m)
			}
		})
	}
}

func TestBadTextKeepsTheSocket(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	for text, name := range map[string]string{
		"x": "RequestError", "[]": "RequestError", "{}": "RequestError", `{"type":"dance"}`: "UnsupportedError",
		`{"type":"resize","cols":0,"rows":1}`: "RequestError", `{"type":"resize","cols":-1,"rows":1}`: "RequestError",
		`{"type":"resize","cols":65536,"rows":1}`: "RequestError", `{"type":"resize","cols":"80","rows":24}`: "RequestError",
		`{"type":"reauth","grant":"a.b.c"}`: "AuthError",
	} {
		c.send(websocket.MessageText, text)
		if m := c.text(protocol.ServerError); m["name"] != name {
			t.Errorf("%s: %v, want %s", text, m, name)
		}
	}
	c.send(websocket.MessageText, `{"type":"ping"}`)
	c.send(websocket.MessageBinary, "still here")
	if got := c.output(10); string(got) != "still here" {
		t.Errorf("%q", got)
	}
}

func TestReauth(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	reauth := func(token string) {
		c.send(websocket.MessageText, mustJSON(t, map[string]string{"type": "reauth", "grant": token}))
	}
	reauth(w.grant(bob))
	if m := c.text(protocol.ServerError); m["name"] != "AuthError" {
		t.Errorf("another user's grant: %v", m)
	}
	expires := time.Now().Add(7 * time.Minute).Unix()
	reauth(w.grant(func(g *jws.Grant) { g.ExpiresAt = expires }))
	if m := c.text(protocol.ServerReauthed); m["expires_at"] != float64(expires) {
		t.Errorf("%v", m)
	}
}

// However much more is on its way, the client hears why.
func TestAFrameTooLarge(t *testing.T) {
	for name, size := range map[string]int{"by a byte": protocol.MaxBrowserMessage + 1, "by far": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, (*httptest.Server).Start)
			c := w.dial(nil)
			c.text(protocol.ServerAttached)
			wrote := make(chan error, 1)
			go func() { wrote <- c.Write(c.ctx, websocket.MessageBinary, make([]byte, size)) }() // received below
			var err error
			for err == nil {
				_, _, err = c.Read(c.ctx)
			}
			if websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
				t.Errorf("%v, want close code 1009", err)
			}
			<-wrote
		})
	}
}

// Who hears why only in the midst of a message may send the rest of it: a reset would
// take the reason from one who hasn't read it yet.
func TestTheRestOfAFrameTooLarge(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	ticket, _ := w.ticket(w.grant(nil), relaytest.PTY)
	c := w.bareSocket(ticket)
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	const rest = lingerBytes / 2
	io.WriteString(c, frame(final|binaryFrame, rest, ""))
	closing := string(faultTooBig.closeFrame())
	for seen := ""; !strings.Contains(seen, closing); {
		piece := make([]byte, 4096)
		n, err := c.Read(piece)
		if seen += string(piece[:n]); err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
	}
	if _, err := c.Write(make([]byte, rest)); err != nil {
		t.Error(err)
	}
}

// Pings are answered whole, between whole data frames.
func TestControlFramesWhileDataFlows(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	type result struct {
		sum [sha256.Size]byte
		err error
	}
	read := make(chan result, 1)
	ctx, stop := context.WithCancel(c.ctx)
	go func() { // received below
		sum, n := sha256.New(), 0
		var err error
		for n < flood && err == nil {
			var data []byte
			if _, data, err = c.Read(ctx); data != nil && data[0] != '{' {
				n += len(data)
				sum.Write(data)
			}
		}
		read <- result{[sha256.Size]byte(sum.Sum(nil)), err}
		for err == nil { // pongs arrive by reading
			_, _, err = c.Read(ctx)
		}
	}()
	c.send(websocket.MessageBinary, "flood")
	for range 50 {
		if err := c.Ping(c.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if r := <-read; r.err != nil || r.sum != sha256.Sum256(make([]byte, flood)) {
		t.Errorf("other bytes, or %v", r.err)
	}
	stop()
}

func TestTheRelayGoesAway(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	closed := make(chan struct{})
	go func() { // waited for below
		defer close(closed)
		w.hubs.Close(c.ctx) // waits until the sockets are told
	}()
	var err error
	for err == nil {
		_, _, err = c.Read(c.ctx)
	}
	var end websocket.CloseError
	if !errors.As(err, &end) || end.Code != websocket.StatusServiceRestart {
		t.Errorf("%v, want close code 1012", err)
	}
	<-closed
}

// TestFound28ReauthWithAGrantThatIsOver: a grant whose time is over by a moment,
// which its verification forgives for clocks that nobody keeps, buys no ticket
// and doesn't carry a socket on.
func TestFound28ReauthWithAGrantThatIsOver(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	over := w.grant(func(g *jws.Grant) {
		g.IssuedAt, g.ExpiresAt = time.Now().Add(-5*time.Minute).Unix(), time.Now().Add(-time.Second).Unix()
	})
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	c.send(websocket.MessageText, mustJSON(t, map[string]string{"type": "reauth", "grant": over}))
	if m := c.text(protocol.ServerError); m["name"] != protocol.KindExpired.Name() {
		t.Errorf("%v", m)
	}
	c.send(websocket.MessageBinary, "still under the old one")
	c.output(len("still under the old one"))
}
