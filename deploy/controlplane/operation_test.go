package controlplane

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const inSession = `{"sessionId":"ses_1"}`

const onPTY = `{"sessionId":"ses_1","ptyId":"pty_1"}`

// TestOperationsRefused: bad input by its stated name, on both ways in.
func TestOperationsRefused(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	alice := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	const create = `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create"}`
	pty := func(op string) string { return `"target":` + onPTY + `,"op":` + op }
	cdp := func(op string) string { return `"target":{"sessionId":"ses_1","extensionId":"abc"},"op":` + op }
	for _, tt := range []struct {
		what, body string
		status     int
		name       string
	}{
		{"TTL 0", create + `,"ttlMs":0`, 400, "RequestError"},
		{"negative TTL", create + `,"ttlMs":-1`, 400, "RequestError"},
		{"TTL of 24 h", create + `,"ttlMs":86400000`, 400, "RequestError"},
		{"one ms over the longest TTL", create + `,"ttlMs":600001`, 400, "RequestError"},
		{"TTL that overflows", create + `,"ttlMs":9223372036854775808`, 400, "RequestError"},
		{"largest TTL", create + `,"ttlMs":9223372036854775807`, 400, "RequestError"},
		{"TTL that overflows as ns", create + `,"ttlMs":9223372036855`, 400, "RequestError"},
		{"TTL with a fraction", create + `,"ttlMs":1.5`, 400, "RequestError"},
		{"TTL as text", create + `,"ttlMs":"30000"`, 400, "RequestError"},
		{"TTL twice", create + `,"ttlMs":1,"ttlMs":30000`, 400, "RequestError"},
		{"unknown op", pty(`{"kind":"pty.dance"}`), 501, "UnsupportedError"},
		{"op in other letters", pty(`{"kind":"PTY.close"}`), 501, "UnsupportedError"},
		{"op of the next version", pty(`{"kind":"chat.edit"}`), 501, "UnsupportedError"},
		{"no kind", pty(`{}`), 400, "RequestError"},
		{"kind that isn't a text", pty(`{"kind":1}`), 400, "RequestError"},
		{"two kinds", pty(`{"kind":"pty.close","kind":"pty.signal"}`), 400, "RequestError"},
		{"op that isn't an object", pty(`["pty.close"]`), 400, "RequestError"},
		{"unknown field", pty(`{"kind":"pty.close","force":true}`), 400, "RequestError"},
		{"field of another op", pty(`{"kind":"pty.close","signal":"INT"}`), 400, "RequestError"},
		{"field in other letters", pty(`{"kind":"pty.signal","Signal":"INT"}`), 400, "RequestError"},
		{"another sandbox", `"target":{"sandboxId":"sb_2","sessionId":"ses_1"},"op":{"kind":"pty.create"}`, 404, "TargetError"},
		{"no terminal", `"target":{"sessionId":"ses_1"},"op":{"kind":"agent.pause"}`, 400, "RequestError"},
		{"a terminal too many", cdp(`{"kind":"pty.close"}`), 400, "RequestError"},
		{"a tab too many", `"target":{"sessionId":"ses_1","tabId":1},"op":{"kind":"pty.create"}`, 400, "RequestError"},
		{"no size", pty(`{"kind":"pty.resize"}`), 400, "RequestError"},
		{"too large a size", pty(`{"kind":"pty.resize","cols":1001,"rows":10}`), 400, "RequestError"},
		{"negative size", pty(`{"kind":"pty.resize","cols":-1,"rows":10}`), 400, "RequestError"},
		{"no agent", pty(`{"kind":"agent.start"}`), 400, "RequestError"},
		{"agent with a long name", pty(`{"kind":"agent.start","name":"` + strings.Repeat("x", 65) + `"}`), 400, "RequestError"},
		{"agent with args of another type", pty(`{"kind":"agent.start","name":"claude","args":"-p"}`), 400, "RequestError"},
		{"opened to nobody known", pty(`{"kind":"terminal.share"}`), 400, "RequestError"},
		{"opened to what is no id", pty(`{"kind":"terminal.share","with":"*"}`), 400, "RequestError"},
		{"two terminals opened", pty(`{"kind":"terminal.share","pty":"pty_2","with":"session"}`), 400, "RequestError"},
		{"no terminal opened", `"target":{"sessionId":"ses_1"},"op":{"kind":"terminal.share","with":"session"}`, 400, "RequestError"},
		{"grant.revoke", pty(`{"kind":"grant.revoke","grants":["gr_1"]}`), 403, "AuthError"},
		{"cdp.send to a terminal", pty(`{"kind":"cdp.send","method":"A.b"}`), 400, "RequestError"},
		{"cdp.send to a tab of no extension", `"target":{"sessionId":"ses_1","tabId":1},"op":{"kind":"cdp.send","method":"A.b"}`, 400, "RequestError"},
		{"cdp.send to no session", `"target":{"extensionId":"abc"},"op":{"kind":"cdp.send","method":"A.b"}`, 400, "RequestError"},
		{"integrations.changed", pty(`{"kind":"integrations.changed"}`), 403, "AuthError"},
		{"cdp.send without a method", cdp(`{"kind":"cdp.send"}`), 400, "RequestError"},
		{"cdp.send with a strange method", cdp(`{"kind":"cdp.send","method":"A.b\nC.d"}`), 400, "RequestError"},
		{"cdp.send with params that are a list", cdp(`{"kind":"cdp.send","method":"Page.reload","params":[1]}`), 400, "RequestError"},
		{"cdp.send with a method that is forbidden", cdp(`{"kind":"cdp.send","method":"Network.getAllCookies"}`), 403, "AuthError"},
		{"cdp.send with a member that is forbidden", cdp(`{"kind":"cdp.send","method":"Page.reload","params":{"scriptToEvaluateOnLoad":"1"}}`), 403, "AuthError"},
		{"cdp.send to a file", cdp(`{"kind":"cdp.send","method":"Page.navigate","params":{"url":"file:///etc"}}`), 400, "RequestError"},
		{"the same to the sandbox's browser", `"target":{"sessionId":"ses_1"},"op":{"kind":"cdp.send","method":"Network.getAllCookies"}`, 403, "AuthError"},
		{"cdp.send with params twice", cdp(`{"kind":"cdp.send","method":"Page.reload","params":{"a":1,"a":2}}`), 400, "RequestError"},
		{"negative tab", `"target":{"sessionId":"ses_1","extensionId":"a","tabId":-1},"op":{"kind":"cdp.send","method":"A.b"}`, 400, "RequestError"},
		{"two tabs", `"target":{"sessionId":"ses_1","extensionId":"a","tabId":1,"tab_id":2},"op":{"kind":"cdp.send","method":"A.b"}`, 400, "RequestError"},
		{"too large", pty(`{"kind":"agent.start","name":"x","command":"` + strings.Repeat("x", web.MaxBody) + `"}`), 413, "LimitError"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			p.t = t
			p.want(commandCall(aliceToken, "{"+tt.body+"}"), tt.status, tt.name)
			p.want(signCall(alice, "k", tt.body), tt.status, tt.name)
		})
	}
}

// TestServicesRefused: the same, of what the sandbox's services do.
func TestServicesRefused(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	alice := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	session := func(op string) string { return `"target":` + inSession + `,"op":` + op }
	pty := func(op string) string { return `"target":` + onPTY + `,"op":` + op }
	for what, body := range map[string]string{
		"session with a text for egress":  `"target":{"sandboxId":"sb_1"},"op":{"kind":"session.create","egress":"on"}`,
		"env.apply of nothing":            session(`{"kind":"env.apply"}`),
		"env.apply to a sandbox":          `"target":{"sandboxId":"sb_1"},"op":{"kind":"env.apply","unset":["A"]}`,
		"env.apply to a browser":          `"target":{"sessionId":"ses_1","extensionId":"abc"},"op":{"kind":"env.apply","unset":["A"]}`,
		"env.apply that is sealed":        session(`{"kind":"env.apply","names":["A"],"sealed":"AAAA"}`),
		"a short secret":                  session(`{"kind":"env.apply","secrets":{"A":{"value":"1234567"}}}`),
		"a variable in other letters":     session(`{"kind":"env.apply","set":{"a":"1"}}`),
		"a variable of the loader":        session(`{"kind":"env.apply","set":{"LD_PRELOAD":"1"}}`),
		"a variable twice":                session(`{"kind":"env.apply","set":{"A":"1"},"unset":["A"]}`),
		"a secret that is a text":         session(`{"kind":"env.apply","secrets":{"A":"12345678"}}`),
		"decision about a terminal":       pty(`{"kind":"egress.decide","pattern":"a.example","decision":"deny_always"}`),
		"decision about nothing":          session(`{"kind":"egress.decide","decision":"deny"}`),
		"decision of nobody":              session(`{"kind":"egress.decide","approvalId":"apr_1","revision":1}`),
		"unknown decision":                session(`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"maybe"}`),
		"decision without revision":       session(`{"kind":"egress.decide","approvalId":"apr_1","decision":"deny"}`),
		"negative revision":               session(`{"kind":"egress.decide","approvalId":"apr_1","revision":-1,"decision":"deny"}`),
		"revision of nothing":             session(`{"kind":"egress.decide","pattern":"a.example","revision":1,"decision":"deny_always"}`),
		"rule for once":                   session(`{"kind":"egress.decide","pattern":"a.example","decision":"allow_once"}`),
		"approval and rule":               session(`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"pattern":"a.example","decision":"deny_always"}`),
		"pattern with a space":            session(`{"kind":"egress.decide","pattern":"a. example","decision":"deny_always"}`),
		"long pattern":                    session(`{"kind":"egress.decide","pattern":"` + strings.Repeat("a", 256) + `","decision":"deny_always"}`),
		"revoking nothing":                session(`{"kind":"egress.revoke"}`),
		"secret without domain":           session(`{"kind":"broker.decide","secret":"KEY","decision":"deny_always"}`),
		"domain without secret":           session(`{"kind":"broker.decide","domain":"a.example","decision":"deny_always"}`),
		"domain with a control character": session(`{"kind":"broker.decide","secret":"KEY","domain":"a\u0007","decision":"deny_always"}`),
	} {
		t.Run(what, func(t *testing.T) {
			p.t = t
			p.want(commandCall(aliceToken, "{"+body+"}"), http.StatusBadRequest, "RequestError")
			p.want(signCall(alice, "k", body), http.StatusBadRequest, "RequestError")
		})
	}
}

// TestNeedsShell: who says what an agent is has to have a shell.
func TestNeedsShell(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view","agent"]}`)
	start := func(members string) string {
		return `"target":` + onPTY + `,"op":{"kind":"agent.start","name":"claude"` + members + `}`
	}
	p.want(signCall(grant, "k1", start("")), http.StatusOK, "")
	p.want(signCall(grant, "k2", start(`,"args":["-p"]`)), http.StatusForbidden, "AuthError")
	p.want(signCall(grant, "k3", start(`,"command":"sh"`)), http.StatusForbidden, "AuthError")
}

// TestExtension: a command for a browser extension is signed for one, and names
// no sandbox.
func TestExtension(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	answer := p.want(signCall(grant, "k1",
		`"target":{"sessionId":"ses_1","sandboxId":"sb_1","extensionId":"abc","tabId":7},"op":{"kind":"cdp.send","method":"Runtime.evaluate"}`), http.StatusOK, "")
	token := answer["envelope"].(map[string]any)["jws"].(string)
	cmd, err := p.keys().Command(t.Context(), token, jws.AudienceExtension)
	want := protocol.CommandTarget{SessionID: "ses_1", ExtensionID: "abc", TabID: 7}
	if err != nil || cmd.Target != want || cmd.UserID != "usr_alice" {
		t.Fatalf("%+v, %v", cmd, err)
	}
	if _, err := p.keys().Command(t.Context(), token, jws.AudienceAgent); err == nil {
		t.Error("an agent would take it")
	}
}
