package controlplane

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHistory lists what was done, to whom it concerns.
func TestHistory(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok","result":{"kind":"pty.create","ptyId":"pty_9"}`))
	p.register("rl_1", relayToken, relay.URL)
	var ids []string
	for range 3 {
		body := p.want(commandCall(aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","command":"secret"}}`), http.StatusOK, "")
		ids = append(ids, body["commandId"].(string))
		p.clock.Advance(time.Second)
	}
	status, _, _ := p.do(getAs(carolToken, "/commands/"+ids[0]))
	raw := p.serve(getAs(carolToken, "/commands/"+ids[0])).Body.String()
	if status != http.StatusOK || strings.Contains(raw, "secret") || strings.Contains(raw, "ct_") || strings.Contains(raw, "eyJ") {
		t.Errorf("%d %s: want the command without what it was told and without its token", status, raw)
	}
	cmd := p.want(getAs(carolToken, "/commands/"+ids[0]), http.StatusOK, "")["command"].(map[string]any)
	if cmd["kind"] != "pty.create" || cmd["user"] != "usr_alice" || cmd["session"] != "ses_1" || cmd["status"] != "ok" ||
		cmd["issued_at"] != "2026-11-20T12:00:00Z" || cmd["finished_at"] == nil || cmd["result"].(map[string]any)["ptyId"] != "pty_9" {
		t.Errorf("command %v", cmd)
	}
	p.want(getAs(daveToken, "/commands/"+ids[0]), http.StatusNotFound, "TargetError")
	p.want(getAs(daveToken, "/commands?session_id=ses_1"), http.StatusNotFound, "TargetError")
	p.want(getAs(aliceToken, "/commands/cmd_none"), http.StatusNotFound, "TargetError")
	p.want(getAs(aliceToken, "/commands/a%20b"), http.StatusNotFound, "TargetError")

	list := func(token, query string) string {
		all := ""
		for _, c := range p.want(getAs(token, "/commands"+query), http.StatusOK, "")["commands"].([]any) {
			all += c.(map[string]any)["id"].(string) + " "
		}
		return all
	}
	three, two, one := ids[2]+" ", ids[1]+" ", ids[0]+" "
	for _, tt := range []struct{ token, query, want string }{
		{aliceToken, "", three + two + one},
		{carolToken, "", ""},
		{carolToken, "?session_id=ses_1", three + two + one},
		{carolToken, "?session_id=ses_1&limit=2", three + two},
		{carolToken, "?session_id=ses_1&limit=2&before=" + ids[1], one},
	} {
		if got := list(tt.token, tt.query); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.query, got, tt.want)
		}
	}
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "session_id=a%20b", "before=a%20b"} {
		p.want(getAs(aliceToken, "/commands?"+bad), http.StatusBadRequest, "RequestError")
	}
}
