package controlplane

import (
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestUsage does one of each thing that is counted.
func TestUsage(t *testing.T) {
	p := newPlane(t)
	answer := `"status":"ok","result":{"kind":"pty.create"}`
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) { callback(answer)(w, env) })
	p.register("rl_1", relayToken, relay.URL)
	p.grant(aliceToken, `{"session_id":"ses_1"}`)
	p.want(commandCall(aliceToken, createBody), http.StatusOK, "")
	p.clock.Advance(24 * time.Hour)
	p.register("rl_1", relayToken, relay.URL)
	answer = `"status":"error","error":{"message":"m","name":"RequestError"}`
	p.want(commandCall(aliceToken, createBody), http.StatusBadRequest, "RequestError")
	p.want(getAs(carolToken, "/dashboards/dash_1"), http.StatusOK, "")

	body := p.want(getAs(carolToken, "/dashboards/dash_1/usage?from=2026-11-20"), http.StatusOK, "")
	want := []any{
		map[string]any{"day": "2026-11-20", "user": "usr_alice", "counts": map[string]any{"commands": 1.0, "grants": 1.0, "terminals": 1.0}},
		map[string]any{"day": "2026-11-21", "user": "usr_alice", "counts": map[string]any{"commands": 1.0, "commands_failed": 1.0}},
		map[string]any{"day": "2026-11-21", "user": "usr_carol", "counts": map[string]any{"api_requests": 2.0}},
	}
	if !reflect.DeepEqual(body["usage"], want) || body["from"] != "2026-11-20" || body["to"] != "2026-11-21" {
		t.Errorf("usage %v, want %v", body, want)
	}
	if body := p.want(getAs(carolToken, "/dashboards/dash_1/usage"), http.StatusOK, ""); body["from"] != "2026-10-23" {
		t.Errorf("by default from %v", body["from"])
	}
	if body := p.want(getAs(carolToken, "/dashboards/dash_1/usage?to=2026-11-19"), http.StatusOK, ""); len(body["usage"].([]any)) != 0 {
		t.Errorf("before all this: %v", body)
	}
	for _, bad := range []string{"from=x", "to=2026-13-01", "from=2026-11-22", "from=2025-11-20", "to=2026-11-20T00:00:00Z"} {
		p.want(getAs(carolToken, "/dashboards/dash_1/usage?"+bad), http.StatusBadRequest, "RequestError")
	}
}

// TestUsageOfOneKey: however often a command is tried, it is one command, and
// failed once.
func TestUsageOfOneKey(t *testing.T) {
	p := newPlane(t)
	down := true
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
		if down {
			status(503)(w, env)
			return
		}
		callback(`"status":"error","error":{"message":"m","name":"RequestError"}`)(w, env)
	})
	p.register("rl_1", relayToken, relay.URL)
	c := commandCall(aliceToken, createBody)
	c.header = map[string]string{"Idempotency-Key": "k1"}
	var posts sync.WaitGroup
	for range 20 {
		posts.Go(func() { p.want(c, http.StatusServiceUnavailable, "InternalError") })
	}
	posts.Wait()
	down = false
	for range 3 {
		p.want(c, http.StatusBadRequest, "RequestError")
	}
	body := p.want(getAs(aliceToken, "/dashboards/dash_1/usage"), http.StatusOK, "")
	counts := body["usage"].([]any)[0].(map[string]any)["counts"].(map[string]any)
	if counts["commands"] != 1.0 || counts["commands_failed"] != 1.0 {
		t.Errorf("counts %v, want 1 command that failed", counts)
	}
}
