package shellapi

import (
	"context"
	"log/slog"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/tunnel"
)

const elsewhere = "https://other.example"

// standby is a fleet whose sandbox is at home elsewhere.
type standby struct{ tunnel *tunnel.Session }

func (s standby) Session(protocol.SandboxID) (*tunnel.Session, error) { return s.tunnel, nil }

func (standby) Wait(context.Context, protocol.SandboxID) (*tunnel.Session, error) {
	return nil, &tunnel.StandbyError{Origin: elsewhere}
}

// isMoved reads until the client is told where to, and then its end.
func (c *client) isMoved() {
	c.t.Helper()
	f := c.next()
	for f.Type == "output" {
		f = c.next()
	}
	if f != (frame{Type: "moved", Origin: elsewhere}) {
		c.t.Errorf("%+v", f)
	}
	if code := c.ended(); code != websocket.StatusCode(protocol.KindRestarting.CloseCode()) {
		c.t.Errorf("closed with %d", code)
	}
}

// TestMoved: a relay that has no terminals of the sandbox's says which has, at once
// and when they go there.
func TestMoved(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	c.send(claudeInit)
	c.send(`{"type":"input","data":"x"}`)
	c.output("x")
	if err := w.agent.SendRole(protocol.Role{Primary: true, Generation: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.agent.SendRole(protocol.Role{Generation: 2, Origin: elsewhere}); err != nil {
		t.Fatal(err)
	}
	c.isMoved()

	w = newWorld(t)
	made := len(w.ops())
	hubs := hub.NewSet(standby{}, slog.New(slog.DiscardHandler), hub.NewMetrics(prometheus.NewRegistry()))
	hubs.Under(w.authority.Grants)
	w.api.Hubs = hubs
	c = w.user()
	c.send(claudeInit)
	c.isMoved()
	if len(w.ops()) != made {
		t.Errorf("signed %q", w.ops())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hubs.Close(ctx)
}
