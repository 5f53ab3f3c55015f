package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
)

// The server echoes terminal.v2 when it is offered, else the ticket.
func TestWhichSubprotocolIsEchoed(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	ticket := func() string {
		secret, _ := w.ticket(w.grant(nil), "pty_1")
		return protocol.SubprotocolTicket + secret
	}
	first, second, third := ticket(), ticket(), ticket()
	for name, c := range map[string]struct {
		offers []string
		want   string
	}{
		"both":              {[]string{protocol.SubprotocolTerminal, first}, protocol.SubprotocolTerminal},
		"the ticket first":  {[]string{second, protocol.SubprotocolTerminal}, protocol.SubprotocolTerminal},
		"the ticket alone":  {[]string{third}, third},
		"something unknown": {[]string{"chat", ticket()}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == "" {
				c.want = c.offers[1]
			}
			if status, selected := w.status(w.socket(w.path, c.offers...)); status != 101 || selected != c.want {
				t.Errorf("%d, %q, want %q", status, selected, c.want)
			}
		})
	}
	_, cookie := w.ticket(w.grant(nil), "pty_1")
	r := w.socket(w.path, protocol.SubprotocolTerminal)
	r.Header.Set("Cookie", "fairlead_pty="+cookie)
	if status, selected := w.status(r); status != 101 || selected != protocol.SubprotocolTerminal {
		t.Errorf("with a cookie: %d, %q", status, selected)
	}
}

// dialV2 attaches a socket that speaks terminal.v2.
func (w *world) dialV2(change func(*jws.Grant), query string) *client {
	w.t.Helper()
	ticket, _ := w.ticket(w.grant(change), relaytest.PTY)
	return w.dialWith(query, protocol.SubprotocolTerminal, protocol.SubprotocolTicket+ticket)
}

func (c *client) types(seq, term uint64, input string) {
	c.t.Helper()
	c.send(websocket.MessageBinary, string(protocol.AppendBrowserInput(nil, protocol.BrowserInput{Seq: seq, Term: term, Bytes: []byte(input)})))
}

func TestATerminalV2(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dialV2(nil, "?client=page")
	c.text(protocol.ServerAttached)
	c.types(1, 1, "hello")
	if got := c.output(5); string(got) != "hello" {
		t.Errorf("%q", got)
	}
	c.send(websocket.MessageText, `{"type":"ack","offset":5}`)
	c.types(2, 9, "of another term")
	if m := c.text(protocol.ServerInputRefused); m["reason"] != string(protocol.RefusedStaleTerm) || m["seq"] != 2.0 {
		t.Errorf("%v", m)
	}
	c.send(websocket.MessageBinary, "short")
	if m := c.text(protocol.ServerError); m["name"] != "RequestError" {
		t.Errorf("%v", m)
	}
	c.send(websocket.MessageText, `{"type":"ack"}`)
	if m := c.text(protocol.ServerError); m["name"] != "RequestError" {
		t.Errorf("%v", m)
	}
	// A flood comes as far as it is acknowledged.
	c.types(3, 1, "flood")
	for got := 5; got < 5+flood; {
		n := min(5+flood-got, protocol.AckBytes)
		got += len(c.output(n))
		ack, _ := json.Marshal(map[string]any{"type": "ack", "offset": got})
		c.send(websocket.MessageText, string(ack))
	}
}

// An ack of a client that doesn't speak terminal.v2 is a mistake.
func TestAnAckOfAPlainClient(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	c.send(websocket.MessageText, `{"type":"ack","offset":0}`)
	if m := c.text(protocol.ServerError); m["name"] != "RequestError" {
		t.Errorf("%v", m)
	}
}

func TestWhatASocketMayAskFor(t *testing.T) {
	recorder := func(g *jws.Grant) { g.Caps = append(g.Caps, protocol.CapRecord) }
	for name, c := range map[string]struct {
		query string
		mode  string
	}{
		"exact":      {"?mode=exact", protocol.ModeResume},
		"a position": {"?since=0000000000000007:0", protocol.ModeResume},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, (*httptest.Server).Start)
			if m := w.dialV2(recorder, c.query).text(protocol.ServerAttached); m["mode"] != c.mode {
				t.Errorf("%v", m)
			}
		})
	}
	// A client that has lost its place isn't sent away, or it would come again
	// with the same.
	for _, since := range []string{"x", "0000000000000007", "0000000000000007:-1", "7:0", "0000000000000007:99999999999999999999"} {
		if guest, err := asked(map[string][]string{protocol.QuerySince: {since}}); err != nil || !guest.Astray || guest.Since != nil {
			t.Errorf("since=%s: %+v, %v", since, guest, err)
		}
	}
}

// standby is a fleet whose sandbox is at home elsewhere.
type standby struct{}

func (standby) Wait(context.Context, protocol.SandboxID) (*tunnel.Session, error) {
	return nil, &tunnel.StandbyError{Origin: "https://other.example"}
}

// A browser can't read why an upgrade was refused, so the socket says where to
// go.
func TestTheTerminalIsElsewhere(t *testing.T) {
	w := newWorldWith(t, (*httptest.Server).Start, standby{})
	c := w.dialV2(nil, "")
	kind, data, err := c.Read(c.ctx)
	var m map[string]string
	if err != nil || kind != websocket.MessageText || json.Unmarshal(data, &m) != nil ||
		m["type"] != protocol.ServerMoved || m["origin"] != "https://other.example" {
		t.Errorf("%s, %v", data, err)
	}
	_, _, err = c.Read(c.ctx)
	var end websocket.CloseError
	if !errors.As(err, &end) || end.Code != websocket.StatusServiceRestart {
		t.Errorf("%v, want close code 1012", err)
	}
	nobody := w.socket(w.path, protocol.SubprotocolTerminal, "ticket.x")
	if status, _ := w.status(nobody); status != http.StatusUnauthorized {
		t.Errorf("status %d: who may not know the terminal is told where it is", status)
	}
}
