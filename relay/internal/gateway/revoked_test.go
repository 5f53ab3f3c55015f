package gateway

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// ended reads until the socket is over, and returns the close frame.
func (c *client) ended() websocket.CloseError {
	c.t.Helper()
	for {
		if _, _, err := c.Read(c.ctx); err != nil {
			end, ok := errors.AsType[websocket.CloseError](err)
			if !ok {
				c.t.Fatal(err)
			}
			return end
		}
	}
}

// TestARevokedGrant: its sockets end within a second, and no ticket of it opens
// another.
func TestARevokedGrant(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	named := func(id protocol.GrantID) func(*jws.Grant) { return func(g *jws.Grant) { g.ID = id } }
	first, second, other := w.dial(named("gr_bad")), w.dial(named("gr_bad")), w.dial(named("gr_good"))
	ticket, _ := w.ticket(w.grant(named("gr_bad")), relaytest.PTY)
	for _, c := range []*client{first, second, other} {
		c.text(protocol.ServerAttached)
	}
	began := time.Now()
	w.revoked.Apply(&jws.Revocations{Number: 1, Grants: []jws.RevokedGrant{{ID: "gr_bad"}}})
	for _, c := range []*client{first, second} {
		if end := c.ended(); end.Code != 4401 || end.Reason != "access was revoked" {
			t.Errorf("%+v", end)
		}
	}
	if took := time.Since(began); took > 6*time.Second { // a second is promised, and a busy machine has its own
		t.Errorf("closed after %v", took)
	}
	if status, body := w.status(w.socket(w.path, protocol.SubprotocolTicket+ticket)); status != 401 {
		t.Errorf("%d, %s", status, body)
	}
	other.send(websocket.MessageBinary, "still here")
	if got := other.output(10); string(got) != "still here" {
		t.Errorf("%q", got)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnExpiredGrant(t *testing.T) {
	t.Parallel() // it waits for two seconds
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	for reauthed := false; !reauthed; { // again if the relay came to it too late
		soon := w.grant(func(g *jws.Grant) { g.ExpiresAt = g.IssuedAt + 2 })
		c.send(websocket.MessageText, mustJSON(t, map[string]string{"type": "reauth", "grant": soon}))
		for m := c.next(); ; m = c.next() {
			if reauthed = m["type"] == protocol.ServerReauthed; reauthed || m["type"] == protocol.ServerError {
				break
			}
		}
	}
	if end := c.ended(); end.Code != 4401 || end.Reason != "the grant has expired" {
		t.Errorf("%+v", end)
	}
}

func TestReauthOfAnother(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c := w.dial(nil)
	c.text(protocol.ServerAttached)
	for name, change := range map[string]func(*jws.Grant){
		"user":    bob,
		"session": func(g *jws.Grant) { g.Session = "ses_x" },
		"sandbox": func(g *jws.Grant) { g.Sandbox = "sb_x" },
	} {
		c.send(websocket.MessageText, mustJSON(t, map[string]string{"type": "reauth", "grant": w.grant(change)}))
		if m := c.text(protocol.ServerError); m["name"] != "AuthError" {
			t.Errorf("another %s: %v", name, m)
		}
	}
}

func TestExecute(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	c, watcher := w.dial(nil), w.dial(bob)
	c.text(protocol.ServerAttached)
	c.send(websocket.MessageText, `{"type":"execute","text":"make"}`)
	if got := c.output(5); string(got) != "make\r" {
		t.Errorf("%q", got)
	}
	watcher.send(websocket.MessageText, `{"type":"execute","text":"make"}`)
	if m := watcher.text(protocol.ServerInputRefused); m["reason"] != string(protocol.RefusedNotController) {
		t.Errorf("%v", m)
	}
	c.send(websocket.MessageText, `{"type":"execute","text":""}`)
	if m := c.text(protocol.ServerError); m["name"] != "RequestError" {
		t.Errorf("%v", m)
	}
}
