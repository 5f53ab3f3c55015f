package controlplane

import (
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A session is made and ended by routes of its own, as the signed commands that
// POST /commands makes of the same wish.
func TestFound30SessionRoutes(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	p.register("rl_1", relayToken, relay.URL)

	status, body, _ := p.do(call{"POST", "/sessions", aliceToken, "", nil})
	made, _ := body["id"].(string)
	if status != http.StatusCreated || !protocol.ValidID(protocol.SessionID(made)) || body["machine_id"] != "sb_1" {
		t.Fatalf("%d %v", status, body)
	}
	signed := verifyCommand(t, p.keys(), relay.got()[0].JWS)
	if signed.Kind() != op.KindSessionCreate || string(signed.Target.SessionID) != made || signed.UserID != "usr_alice" {
		t.Errorf("signed %+v", signed)
	}
	// The same key is the same session.
	key := map[string]string{"Idempotency-Key": "once"}
	_, first, _ := p.do(call{"POST", "/sessions", aliceToken, `{"dashboard_id":"dash_1","mcp_token":"x"}`, key})
	if _, again, _ := p.do(call{"POST", "/sessions", aliceToken, `{"dashboard_id":"dash_1"}`, key}); first["id"] != again["id"] || first["id"] == made {
		t.Errorf("%v, then %v", first, again)
	}
	for _, tt := range []struct {
		name string
		call
		status int
	}{
		{"nobody", call{"POST", "/sessions", "", "", nil}, 401},
		{"not a member", call{"POST", "/sessions", bobToken, `{"dashboard_id":"dash_nowhere"}`, nil}, 404},
		{"unknown member", call{"POST", "/sessions", aliceToken, `{"sandbox":"sb_1"}`, nil}, 400},
		{"no JSON", call{"POST", "/sessions", aliceToken, `{`, nil}, 400},
		{"another's session", call{"DELETE", "/sessions/" + made, "ut_nobody", "", nil}, 401},
		{"no such session", call{"DELETE", "/sessions/ses_none", aliceToken, "", nil}, 404},
		{"may not end it", call{"DELETE", "/sessions/" + made, bobToken, "", nil}, 403},
		{"may not make one", call{"POST", "/sessions", bobToken, `{"dashboard_id":"dash_1"}`, nil}, 403},
		{"wherever she may", call{"POST", "/sessions", bobToken, "", nil}, 403},
		{"another method", call{"PUT", "/sessions", aliceToken, "", nil}, 405},
		{"it is over", call{"DELETE", "/sessions/" + made, aliceToken, "", nil}, 204},
		{"a grant opens none", call{"POST", "/sessions", "ey.ey.ey", "", nil}, 401},
	} {
		if answer := p.serve(tt.call); answer.Code != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, answer.Code, answer.Body, tt.status)
		}
	}
}

// What isn't done isn't said to be.
func TestFound30SessionNotMade(t *testing.T) {
	for _, tt := range []struct {
		answer string
		status int
	}{
		{`"status":"unknown"`, http.StatusBadGateway},
		{`"status":"error","error":{"message":"no egress here","name":"UnsupportedError"}`, http.StatusNotImplemented},
	} {
		p := newPlane(t)
		relay := newFakeRelay(t, callback(tt.answer))
		p.register("rl_1", relayToken, relay.URL)
		if status, body, _ := p.do(call{"POST", "/sessions", aliceToken, "", nil}); status != tt.status || body["id"] != nil {
			t.Errorf("%s: %d %v, want %d", tt.answer, status, body, tt.status)
		}
	}
	p := newPlane(t) // without a relay
	if status, body, _ := p.do(call{"POST", "/sessions", aliceToken, "", nil}); status != http.StatusServiceUnavailable {
		t.Errorf("%d %v", status, body)
	}
}
