package controlplane

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
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
	cmd := p.want(getAs(aliceToken, "/commands/"+ids[0]), http.StatusOK, "")["command"].(map[string]any)
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

// TestFound01WhoReadsOutcomes: a member sees that something was done and how it
// went; what came of it is for who may have it done, and of what was done in a
// browser for its user alone.
func TestFound01WhoReadsOutcomes(t *testing.T) {
	p := newPlane(t)
	noErr := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	noErr(p.server.store.Boards.SetMember(t.Context(), "dash_1", "usr_bob", store.RoleEditor, "")) // has mcp and shell
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
		if env.Target.PTYID != "" {
			callback(`"status":"error","error":{"name":"TargetError","message":"a secret of the error"},"telemetry":{"attempt":1}`)(w, env)
			return
		}
		callback(`"status":"ok","result":{"kind":"cdp.send","cdp":"a cookie"}`)(w, env)
	})
	p.register("rl_1", relayToken, relay.URL)
	run := func(target, op string) string {
		t.Helper()
		_, body, _ := p.do(commandCall(aliceToken, `{"target":{"sessionId":"ses_1"`+target+`},"op":`+op+`}`))
		p.clock.Advance(time.Second)
		return body["commandId"].(string)
	}
	const navigate = `{"kind":"cdp.send","method":"Page.reload"}`
	inSandbox, inBrowser := run("", navigate), run(`,"extensionId":"abc"`, navigate)
	failed := run(`,"ptyId":"pty_1"`, `{"kind":"pty.close"}`)

	check := func(who, token, id, part string, want bool) {
		t.Helper()
		one := p.serve(getAs(token, "/commands/"+id)).Body.String()
		if !strings.Contains(one, id) || strings.Contains(one, part) != want {
			t.Errorf("%s, one command, reads %q: want %v: %s", who, part, want, one)
		}
		for _, c := range p.want(getAs(token, "/commands?session_id=ses_1"), http.StatusOK, "")["commands"].([]any) {
			if c := c.(map[string]any); c["id"] == id && (c["result"] != nil || c["error"] != nil) != want {
				t.Errorf("%s, in the list, reads %q: want %v: %v", who, part, want, c)
			}
		}
	}
	for _, c := range []struct {
		who, token                   string
		sandbox, browser, terminated bool
	}{
		{"alice, whose they are", aliceToken, true, true, true},
		{"bob, an editor", bobToken, true, false, true},
		{"carol, who may watch", carolToken, false, false, false},
	} {
		check(c.who, c.token, inSandbox, "a cookie", c.sandbox)
		check(c.who, c.token, inBrowser, "a cookie", c.browser)
		check(c.who, c.token, failed, "a secret of the error", c.terminated)
	}
	// Nothing comes back with the end of the session, nor goes away.
	noErr(p.server.store.Sessions.EndSession(t.Context(), "ses_1"))
	check("alice after the end", aliceToken, inSandbox, "a cookie", true)
	check("bob after the end", bobToken, inBrowser, "a cookie", false)
	check("carol after the end", carolToken, inSandbox, "a cookie", false)
	// Whose capability is gone reads no more than others without it.
	noErr(p.server.store.Boards.SetMember(t.Context(), "dash_1", "usr_bob", store.RoleEditor, "view"))
	check("bob without mcp", bobToken, inSandbox, "a cookie", false)
}
