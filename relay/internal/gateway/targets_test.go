package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// echoes are targets of another kind: each session has one, which says what it
// is told.
type echoes struct {
	refuse atomic.Bool
	closed chan struct{} // receives for each target that was opened and is closed
}

func (*echoes) Name() string   { return "echo" }
func (*echoes) Cookie() string { return "fairlead_echo" }

func (e *echoes) Ask(r *http.Request, _ Offer) (access.Presented, Socket, error) {
	return access.Presented{Target: echo(r.PathValue("sid"))}, &echoing{of: e}, nil
}

func echo(session string) access.Target {
	return access.Target{Kind: "echo", Session: protocol.SessionID(session)}
}

type echoing struct{ of *echoes }

func (s *echoing) Check(grant *jws.Grant) error {
	if !grant.Allows(relaytest.Session, "", protocol.CapView) {
		return protocol.Fault(protocol.KindForbidden, nil)
	}
	return nil
}

func (s *echoing) Open(context.Context, access.Admission) error {
	if s.of.refuse.Load() {
		return protocol.Fault(protocol.KindUnavailable, errors.New("no echo"))
	}
	return nil
}

func (s *echoing) Serve(c *Conn, _ *access.Pass) {
	for {
		_, data, err := c.Read(context.Background())
		if err != nil || c.WriteFrames(net.Buffers{replay.AppendTextFrame(nil, data)}) != nil {
			return
		}
	}
}

func (s *echoing) Close() { s.of.closed <- struct{}{} }

// TestAnotherKindOfTarget: what the gateway does for terminals it does for
// whatever else a socket leads to, and an admission to one kind opens no other.
func TestAnotherKindOfTarget(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	w.gateway.SocketsPerPerson = 2
	targets, mux := &echoes{closed: make(chan struct{}, 8)}, http.NewServeMux()
	mux.Handle("/", w.server.Config.Handler)
	mux.Handle("GET /echoes/{sid}/ws", w.gateway.Origins.Guard(w.gateway.Sockets(targets)))
	w.server.Config.Handler = mux
	issue := func(change func(*jws.Grant)) (ticket, cookie string, grant *jws.Grant) {
		t.Helper()
		grant, token := w.authority.Grant(change)
		ticket, cookie, _, err := w.gateway.Tickets.Issue(access.Admission{Grant: grant, Token: token, Target: echo("ses_1")})
		if err != nil {
			t.Fatal(err)
		}
		return ticket, cookie, grant
	}
	request := func(ticket, cookie string) *http.Request {
		r := w.socket("/echoes/ses_1/ws")
		if ticket != "" {
			r.Header.Set("Sec-WebSocket-Protocol", protocol.SubprotocolTicket+ticket)
		}
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: targets.Cookie(), Value: cookie})
		}
		return r
	}
	expect := func(what string, r *http.Request, want int) {
		t.Helper()
		if got, _ := w.status(r); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}

	ticket, cookie, _ := issue(nil)
	terminals, _ := w.ticket(w.grant(nil), relaytest.PTY)
	expect("a terminal's ticket", request(terminals, ""), http.StatusUnauthorized)
	expect("its ticket at a terminal", w.socket(w.path, protocol.SubprotocolTicket+ticket), http.StatusUnauthorized)
	foreign := request(ticket, "")
	foreign.Header.Set("Origin", "https://evil.example")
	expect("a page of another origin", foreign, http.StatusForbidden)
	targets.refuse.Store(true)
	expect("nothing to open", request("", cookie), http.StatusServiceUnavailable)
	targets.refuse.Store(false)
	blind, _, _ := issue(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapControl} })
	expect("a grant that doesn't do", request(blind, ""), http.StatusForbidden)
	void, _, grant := issue(nil)
	w.revoked.Add(grant.ID)
	expect("a void grant", request(void, ""), http.StatusUnauthorized)

	dial := func(header http.Header, subprotocols ...string) (*websocket.Conn, *http.Response) {
		t.Helper()
		header.Set("Origin", w.server.URL)
		conn, resp, err := websocket.Dial(t.Context(), w.server.URL+"/echoes/ses_1/ws", &websocket.DialOptions{
			HTTPClient: w.server.Client(), HTTPHeader: header, Subprotocols: subprotocols,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.CloseNow() })
		return conn, resp
	}
	conn, resp := dial(http.Header{"Cookie": {targets.Cookie() + "=" + cookie}})
	if next := resp.Cookies(); len(next) != 1 || next[0].Name != targets.Cookie() || next[0].Value == cookie || next[0].Path != "/echoes/ses_1/ws" {
		t.Errorf("the next cookie is %+v", next)
	}
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, data, err := conn.Read(t.Context()); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	expect("the ticket after the cookie", request(ticket, ""), http.StatusUnauthorized)
	w.dial(nil).text(protocol.ServerAttached) // the person's second socket, of another kind
	more, _, _ := issue(nil)
	third, _ := dial(http.Header{}, protocol.SubprotocolTicket+more)
	if _, _, err := third.Read(t.Context()); websocket.CloseStatus(err) != 4429 {
		t.Errorf("the third socket of one person: %v", err)
	}
	conn.CloseNow()
	select {
	case <-targets.closed:
	case <-time.After(patience):
		t.Error("the target stays open")
	}
}
