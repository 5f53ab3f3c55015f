package pluginapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// TestPasses: messages pass both ways, of each type and as large as allowed, and
// the client's code at the end.
func TestPasses(t *testing.T) {
	w := newWorld(t)
	conn := w.open("it")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, m := range []struct {
		kind websocket.MessageType
		text string
	}{
		{websocket.MessageText, "hello"}, {websocket.MessageBinary, "\x00\xff"}, {websocket.MessageText, ""},
		{websocket.MessageBinary, strings.Repeat("0123456789abcdef", pluginsocket.MaxMessage/16)},
	} {
		must(t, conn.Write(ctx, m.kind, []byte(m.text)))
		kind, got, err := conn.Read(ctx)
		if err != nil || kind != m.kind || string(got) != m.text {
			t.Errorf("%v of %d bytes, %v", kind, len(got), err)
		}
	}
	if err := conn.Close(4321, "done"); err != nil {
		t.Error(err)
	}
}

// TestSent: the agent is asked for the session's plugin under the caller's grant,
// and gets nothing else that the client has sent.
func TestSent(t *testing.T) {
	w := newWorld(t)
	asked := make(chan string, 1)
	w.agent = func(rw http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprint(r.Method, " ", r.RequestURI, " ", slices.Sorted(maps.Keys(r.Header)))
		says(closeFrame(3999, "from the plugin"))(rw, r)
	}
	conn := w.open("My_plug-1")
	if got := w.ended(conn); got != "3999 from the plugin" {
		t.Error(got)
	}
	if got := <-asked; got != "GET /sessions/ses_1/plugin-ws/My_plug-1 [Connection Fairlead-Socket Upgrade]" {
		t.Error(got)
	}
}

// TestNames: a name that can't be is refused in the seed's words, whatever a mux
// would make of it, and the sandbox isn't asked.
func TestNames(t *testing.T) {
	w := newWorld(t)
	w.agent = func(rw http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.RequestURI) }
	for _, name := range []string{"../x", "%2e", "%2e%2e%2fx", "..", "", "a/b", "a//b", "a%62", "é", "a.b", strings.Repeat("a", 65), "$(id)", "'"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.origin, "http://"))
		must(t, err)
		fmt.Fprintf(conn, "GET %s%s?token=%s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", Path, name, w.good(), strings.TrimPrefix(w.origin, "http://"), w.origin)
		from := bufio.NewReader(conn)
		resp, err := http.ReadResponse(from, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%q: %v %v", name, resp, err)
			conn.Close()
			continue
		}
		rest, _ := io.ReadAll(from)
		if want := closeFrame(4400, "Invalid plugin name"); string(rest) != want {
			t.Errorf("%q: %q", name, rest)
		}
		conn.Close()
	}
}

// TestRefused: who isn't admitted is refused before the upgrade; each credential
// opens what it is for alone, and once.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	grant, token := w.grant(protocol.CapView, protocol.CapPlugins)
	used := w.good()
	first, _, err := w.dial("it", used)
	must(t, err)
	defer first.CloseNow()
	foreign, foreignToken := w.grant(protocol.CapView, protocol.CapChat)
	revoked, revokedToken := w.grant(protocol.CapView, protocol.CapPlugins)
	late := w.ticket(revoked, revokedToken)
	w.authority.Revoked.Add(revoked.ID)
	for what, tt := range map[string]struct {
		ticket string
		status int
	}{
		"nothing": {"", http.StatusUnauthorized}, "used before": {used, http.StatusUnauthorized}, "a grant": {token, http.StatusUnauthorized},
		"without plugins": {w.ticket(foreign, foreignToken), http.StatusForbidden}, "revoked": {late, http.StatusUnauthorized},
	} {
		_, resp, err := w.dial("it", tt.ticket)
		if err == nil || resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %v %v", what, resp, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	url := "ws" + strings.TrimPrefix(w.origin, "http") + Path + "it"
	for what, header := range map[string]http.Header{
		"another origin": {"Origin": {"https://evil.example"}, "Authorization": {"Bearer " + w.ticket(grant, token)}},
		"no origin":      {"Authorization": {"Bearer " + w.ticket(grant, token)}},
		"a grant":        {"Origin": {w.origin}, "Authorization": {"Bearer " + token}},
		"a bad cookie":   {"Origin": {w.origin}, "Cookie": {access.AppCookieName + "=x"}},
	} {
		_, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header})
		if err == nil || resp == nil || resp.StatusCode/100 != 4 {
			t.Errorf("%s: %v %v", what, resp, err)
		}
	}
	for what, header := range map[string]http.Header{
		"a ticket in the header": {"Origin": {w.origin}, "Authorization": {"Bearer " + w.ticket(grant, token)}},
		"a cookie":               {"Origin": {w.origin}, "Cookie": {w.cookie().String()}},
	} {
		conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		conn.CloseNow()
	}
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {w.origin}}, Subprotocols: []string{protocol.SubprotocolTicket + w.ticket(grant, token)},
	})
	if err != nil || !strings.HasPrefix(conn.Subprotocol(), protocol.SubprotocolTicket) {
		t.Errorf("a ticket as subprotocol: %v", err)
	}
	conn.CloseNow()
}

func (w *world) cookie() *http.Cookie {
	grant, token := w.grant(protocol.CapView, protocol.CapPlugins)
	value, _, err := w.api.Apps.Issue(grant, token, relaytest.Session, access.AppSession{})
	must(w.t, err)
	return &http.Cookie{Name: access.AppCookieName, Value: value}
}

// TestAgentEnds: whatever a sandbox does, a client is told why its socket ends.
func TestAgentEnds(t *testing.T) {
	answer := func(status int) func(http.ResponseWriter, *http.Request) {
		return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) }
	}
	for what, tt := range map[string]struct {
		agent func(http.ResponseWriter, *http.Request)
		want  string
	}{
		"no plugin":      {says(closeFrame(4404, "Plugin not running")), "4404 Plugin not running"},
		"forbids":        {answer(http.StatusForbidden), "4403 forbidden"},
		"too many":       {answer(http.StatusTooManyRequests), "4429 too many requests"},
		"old agent":      {answer(http.StatusNotFound), "4502 Upstream error"},
		"breaks off":     {says("x"), "4502 Upstream error"},
		"masked":         {says("\x81\x81aaaaa"), "4502 Upstream error"},
		"too long frame": {says(string(wsframe.Header{Final: true, Opcode: wsframe.Binary, Length: pluginsocket.MaxPiece + 1}.Append(nil))), "4502 Upstream error"},
		"endless header": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("X", strings.Repeat("x", maxAnswer))
			rw.WriteHeader(http.StatusSwitchingProtocols)
		}, "4502 Upstream error"},
	} {
		w := newWorld(t)
		w.agent = tt.agent
		if got := w.ended(w.open("it")); got != tt.want {
			t.Errorf("%s: %s", what, got)
		}
	}
	w := newWorld(t)
	w.tunnels.Connect(nil)
	if got := w.ended(w.open("it")); got != "1013 try again later" {
		t.Errorf("no tunnel: %s", got)
	}
}

// TestEnds: a socket ends with its grant, its cookie, its tunnel and its relay, and
// the client reads which.
func TestEnds(t *testing.T) {
	for what, tt := range map[string]struct {
		end  func(*world)
		want string
	}{
		"expired": {func(w *world) { w.authority.Ahead.Add(int64(time.Hour)) }, "4401 expired"},
		"revoked": {func(w *world) { w.revokeAll() }, "4401 not authenticated"},
		"drained": {func(w *world) { w.api.Requests.Drain() }, "1012 restarting"},
		"lost":    {func(w *world) { w.relay.Close() }, "1013 try again later"},
	} {
		w := newWorld(t)
		w.agent = says(string(wsframe.Header{Final: true, Opcode: wsframe.Text}.Append(nil)))
		grant, token := w.grant(protocol.CapView, protocol.CapPlugins)
		conn, _, err := w.dial("it", w.ticket(grant, token))
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, _, err := conn.Read(ctx); err != nil { // it is open all the way
			t.Error(err)
		}
		cancel()
		revoking = grant.ID
		tt.end(w)
		if got := w.ended(conn); got != tt.want {
			t.Errorf("%s: %s", what, got)
		}
	}
	w := newWorld(t)
	w.agent = says(string(wsframe.Header{Final: true, Opcode: wsframe.Text}.Append(nil)))
	cookie := w.cookie()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(w.origin, "http")+Path+"it", &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {w.origin}, "Cookie": {cookie.String()}},
	})
	must(t, err)
	if _, _, err := conn.Read(ctx); err != nil {
		t.Error(err)
	}
	r, _ := http.NewRequest(http.MethodPost, w.origin, nil)
	r.AddCookie(cookie)
	app, err := w.api.Apps.Presented(r)
	must(t, err)
	w.api.Apps.LogOut(app)
	if got := w.ended(conn); !strings.HasPrefix(got, "4401 ") {
		t.Errorf("logged out: %s", got)
	}
}

var revoking protocol.GrantID

func (w *world) revokeAll() { w.authority.Revoked.Add(revoking) }

// TestTooMany: a person's sockets are bounded, which a browser can read.
func TestTooMany(t *testing.T) {
	w := newWorld(t)
	w.api.SocketsPerPerson = 2
	w.open("it")
	w.open("it")
	if got := w.ended(w.open("it")); got != "4429 too many sockets of one person" {
		t.Error(got)
	}
}

// held is what all buffers between a client and an agent take at most, also the
// system's. A flood is more.
const held = 16 << 20

// TestHeldBack: a client that reads nothing costs the relay its windows; later it
// gets everything in its order, to the last byte.
func TestHeldBack(t *testing.T) {
	const pieces = 3000
	w := newWorld(t)
	var sent atomic.Int64
	w.agent = func(rw http.ResponseWriter, _ *http.Request) {
		buf, conn := upgraded(rw)
		if conn == nil {
			return
		}
		defer conn.Close()
		for n := range pieces {
			buf.Write(append(wsframe.Header{Final: true, Opcode: wsframe.Binary, Length: wsframe.Piece}.Append(nil), numbered(n, wsframe.Piece)...))
			if buf.Flush() != nil {
				return
			}
			sent.Add(wsframe.Piece)
		}
		buf.WriteString(closeFrame(1000, ""))
		buf.Flush()
		io.Copy(io.Discard, buf)
	}
	conn := w.open("it")
	if got := stalled(t, &sent); got > held {
		t.Errorf("%d bytes were taken for a client that reads nothing", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range pieces {
		if _, got, err := conn.Read(ctx); err != nil || !bytes.Equal(got, numbered(i, wsframe.Piece)) {
			t.Fatalf("piece %d: %d bytes, %v", i, len(got), err)
		}
	}
	if got := w.ended(conn); got != "1000 " {
		t.Error(got)
	}
}

// TestHeldBackBefore: a sandbox that doesn't answer, and a plugin that then reads
// nothing, cost the relay its windows; each of a client's frames arrives later.
func TestHeldBackBefore(t *testing.T) {
	const frames, size = 10_000, 4 << 10
	w := newWorld(t)
	var sent atomic.Int64
	answer, read, got := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	w.agent = func(rw http.ResponseWriter, _ *http.Request) {
		<-answer
		buf, conn := upgraded(rw)
		if conn == nil {
			return
		}
		defer conn.Close()
		<-read
		masked := bufio.NewReader(buf)
		n := 0
		for ; n < frames; n++ {
			if h, payload, err := frameOf(masked); err != nil || h.Opcode != wsframe.Binary || !bytes.Equal(payload, numbered(n, size)) {
				break
			}
		}
		got <- n
		buf.WriteString(closeFrame(1000, ""))
		buf.Flush()
		io.Copy(io.Discard, masked)
	}
	conn := w.open("it")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { // ends with the socket
		for n := range frames {
			if conn.Write(ctx, websocket.MessageBinary, numbered(n, size)) != nil {
				return
			}
			sent.Add(size)
		}
	}()
	if got := stalled(t, &sent); got > held {
		t.Errorf("%d bytes were taken for a sandbox that doesn't answer", got)
	}
	close(answer)
	if got := stalled(t, &sent); got > held {
		t.Errorf("%d bytes were taken for a plugin that reads nothing", got)
	}
	close(read)
	if n := <-got; n != frames {
		t.Errorf("frame %d isn't the next one", n)
	}
	if got := w.ended(conn); got != "1000 " {
		t.Error(got)
	}
}

// numbered is a payload that no other one is equal to.
func numbered(n, size int) []byte {
	return append(bytes.Repeat([]byte{byte(n)}, size-8), fmt.Sprintf("%08d", n)...)
}

// stalled returns sent once it is no longer raised. On a machine that is so slow that
// it looks so, it is only smaller.
func stalled(t *testing.T, sent *atomic.Int64) int64 {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last, still := int64(0), 0; ; {
		<-tick.C
		now := sent.Load()
		if still++; now == 0 || now != last {
			last, still = now, 0
		}
		if still == 6 || now > held {
			return now
		}
	}
}

// TestRenewed: a socket that a cookie has opened goes on under the grant with which
// the cookie was renewed, here and at the agent; without plugins in it, it doesn't.
func TestRenewed(t *testing.T) {
	for _, caps := range [][]protocol.Capability{{protocol.CapView, protocol.CapPlugins}, {protocol.CapView}} {
		w := newWorld(t)
		opened, renewed := make(chan string, 1), make(chan string, 1)
		w.agent = func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				renewed <- strings.TrimPrefix(r.URL.Path, "/sessions/ses_1/plugin-sockets/")
				rw.WriteHeader(http.StatusNoContent)
				return
			}
			opened <- r.Header.Get(pluginsocket.Handle)
			echo(rw, r)
		}
		grant, token := w.grant(protocol.CapView, protocol.CapPlugins)
		value, app, err := w.api.Apps.Issue(grant, token, relaytest.Session, access.AppSession{})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(w.origin, "http")+Path+"it", &websocket.DialOptions{
			HTTPHeader: http.Header{"Origin": {w.origin}, "Cookie": {access.AppCookieName + "=" + value}},
		})
		must(t, err)
		defer conn.CloseNow()
		said := func() error {
			if err := conn.Write(ctx, websocket.MessageText, []byte("still there?")); err != nil {
				return err
			}
			_, _, err := conn.Read(ctx)
			return err
		}
		must(t, said())
		later, laterToken := w.authority.Grant(func(g *jws.Grant) { g.Session, g.Caps, g.ExpiresAt = relaytest.Session, caps, g.IssuedAt+590 })
		_, _, err = w.api.Apps.Issue(later, laterToken, relaytest.Session, app)
		must(t, err)
		if len(caps) == 1 {
			w.authority.Ahead.Add(int64(6 * time.Minute))
			if got := w.ended(conn); got != "4401 expired" {
				t.Error(got)
			}
			continue
		}
		if handle := <-opened; handle != <-renewed || !protocol.ValidID(handle) {
			t.Errorf("the agent was asked for another socket than %q", handle)
		}
		old, _, err := w.dial("it", w.ticket(grant, token))
		must(t, err)
		<-opened
		w.authority.Ahead.Add(int64(6 * time.Minute))
		if got := w.ended(old); got != "4401 expired" {
			t.Error(got)
		}
		must(t, said())
	}
}
