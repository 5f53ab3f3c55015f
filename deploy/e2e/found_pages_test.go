package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound14AnsweredElsewhere: commands for a page are offered at both relays and
// answered at one. The other one doesn't give them to a page that connects there,
// and has room for new ones.
func TestFound14AnsweredElsewhere(t *testing.T) {
	s := own(t, "--relays", "2")
	ctx, leave := context.WithCancel(within(t))
	defer leave()
	alice, second := s.at(0, "alice"), s.at(1, "alice")
	grant := mustGrant(ctx, t, s, "alice")
	page := listen(ctx, t, alice.Base, grant)
	answered := make(chan protocol.CommandID, 1)
	go func() { // ends with ctx
		for ctx.Err() == nil {
			select {
			case env := <-page.events:
				reply := payload[struct {
					Reply struct{ CallbackToken string }
				}](t, env.JWS).Reply
				Call(ctx, http.MethodPost, alice.Base+"/control/callback", reply.CallbackToken, protocol.ExecutionCallback{
					Type: protocol.CallbackType, CommandID: env.CommandID, TraceID: env.TraceID, At: time.Now().UnixMilli(),
					Status: protocol.StatusOK, Telemetry: &protocol.Telemetry{Attempt: 1},
				})
				select {
				case answered <- env.CommandID:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}
	}()
	run := func() protocol.CommandID {
		t.Helper()
		body := toExtension(s, map[string]any{"method": "Page.reload"})
		body["ttlMs"] = 600_000
		must(t, call(ctx, http.StatusOK, nil, http.MethodPost, alice.Base+"/commands", alice.Token, body))
		return <-answered
	}
	for range 2 * protocol.MaxCommandsInFlight { // more than may wait for one person
		run()
	}
	// The relays are told in a moment: a page that connects then gets what is new,
	// and nothing else.
	last := "nothing"
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		visit, left := context.WithCancel(ctx)
		late := listen(visit, t, second.Base, grant)
		fresh := run()
		select {
		case env := <-late.events:
			if last = "an answered command"; env.CommandID == fresh {
				left()
				return
			}
		case <-time.After(time.Second):
			last = "nothing"
		}
		left()
	}
	t.Errorf("a page at the other relay gets %s", last)
}
