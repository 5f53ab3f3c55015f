package sandboxapi

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// Decisions become the operation of their kind.
func TestDecide(t *testing.T) {
	w := newWorld(t)
	w.execute = func(c *jws.Command) protocol.Result {
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), Applied: true, Approval: &protocol.Approval{ID: "apr_1", Revision: 2}})
	}
	_, token := w.authority.Grant(everything)
	for _, c := range []struct{ path, body, op string }{
		{"approvals/apr_1", `{"kind":"egress","revision":1,"decision":"allow_once"}`,
			`{"approvalId":"apr_1","decision":"allow_once","kind":"egress.decide","revision":1}`},
		{"approvals/apr_1", `{"kind":"broker","revision":3,"decision":"deny_always"}`,
			`{"approvalId":"apr_1","decision":"deny_always","kind":"broker.decide","revision":3}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"allow","updatedInput":{"command":"ls <b>"},"remember":"Bash(ls:*)"}`,
			`{"approval":"apr_1","decision":"allow_once","kind":"tool.decide","remember":"Bash(ls:*)","revision":1,"updatedInput":{"command":"ls \u003cb\u003e"}}`},
		{"approvals/apr_1", `{"kind":"tool","revision":2,"decision":"allow_always"}`,
			`{"approval":"apr_1","decision":"allow_always","kind":"tool.decide","revision":2}`},
		{"approvals/apr_1", `{"revision":1,"decision":"deny","message":"not here"}`,
			`{"approval":"apr_1","decision":"deny","kind":"tool.decide","message":"not here","revision":1}`},
		{"egress/approve", `{"domain":"a.example","request_id":"apr_1","decision":"allow_once"}`,
			`{"approvalId":"apr_1","decision":"allow_once","kind":"egress.decide","revision":1}`},
		{"egress/approve", `{"request_id":"apr_1","revision":2,"decision":"deny"}`,
			`{"approvalId":"apr_1","decision":"deny","kind":"egress.decide","revision":2}`},
		{"egress/approve", `{"domain":"*.a.example","decision":"allow_always"}`,
			`{"decision":"allow_always","kind":"egress.decide","pattern":"*.a.example"}`},
	} {
		expect(t, w.do(http.MethodPost, "/sessions/ses_1/"+c.path, token, c.body), http.StatusOK, `"applied":true`, `"id":"apr_1"`, `"revision":2`)
		if op, _ := json.Marshal(w.signed[len(w.signed)-1].Op); string(op) != c.op {
			t.Errorf("%s: signed %s, want %s", c.body, op, c.op)
		}
	}
	for _, body := range []string{`{"domain":"a.example"}`, `{"pattern":"a.example"}`} {
		expect(t, w.do(http.MethodPost, "/sessions/ses_1/egress/revoke", token, body), http.StatusNoContent)
		if op, _ := json.Marshal(w.signed[len(w.signed)-1].Op); string(op) != `{"kind":"egress.revoke","pattern":"a.example"}` {
			t.Errorf("signed %s", op)
		}
	}
}

// A decision that is no decision goes nowhere; one that came too late is told
// how things stand.
func TestDecideRefuses(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	for _, c := range []struct{ path, body string }{
		{"approvals/apr_1", `{"kind":"mcp","revision":1,"decision":"deny"}`},
		{"approvals/apr_1", `{"kind":"egress","decision":"deny"}`},
		{"approvals/apr_1", `{"kind":"egress","revision":1,"decision":"allow"}`},
		{"approvals/apr_1", `{"kind":"egress","revision":1}`},
		{"approvals/apr_1", `{"kind":"egress","revision":-1,"decision":"deny"}`},
		{"approvals/apr_1", `{"kind":"egress","revision":1,"decision":"deny","message":"no"}`},
		{"approvals/apr_1", `{"kind":"broker","revision":1,"decision":"allow_once","updatedInput":{}}`},
		{"approvals/apr_1", `{"kind":"tool","decision":"deny"}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"deny_always"}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"allow","message":"why"}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"deny","remember":"Bash"}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"allow","updatedInput":[1]}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"allow","updatedInput":{"a":1,"a":2}}`},
		{"approvals/apr_1", `{"kind":"tool","revision":1,"decision":"allow","approval":"apr_2"}`},
		{"approvals/-", `{"kind":"egress","revision":1,"decision":"deny"}`},
		{"egress/approve", `{"domain":"a.example","decision":"allow_once"}`},
		{"egress/approve", `{"decision":"allow_always"}`},
		{"egress/revoke", `{}`},
		{"egress/revoke", `{"domain":"a","pattern":"b"}`},
	} {
		expect(t, w.do(http.MethodPost, "/sessions/ses_1/"+c.path, token, c.body), http.StatusBadRequest)
	}
	_, viewer := w.authority.Grant(nil)
	for _, body := range []string{`{"kind":"egress","revision":1,"decision":"deny"}`, `{"kind":"tool","revision":1,"decision":"allow"}`, `{`} {
		expect(t, w.do(http.MethodPost, "/sessions/ses_1/approvals/apr_1", viewer, body), http.StatusForbidden)
	}
	if len(w.signed) != 0 {
		t.Errorf("signed %+v", w.signed)
	}
	w.execute = fails(protocol.KindConflict, `{"status":"error","error":{"message":"it has changed","name":"RequestError"}}`)
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/approvals/apr_1", token, `{"kind":"egress","revision":1,"decision":"deny"}`), http.StatusConflict, "it has changed")
}

// While nothing can be signed, whoever decides is told so, and soon.
func TestControlPlaneAway(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	const body = `{"kind":"egress","revision":1,"decision":"deny"}`
	w.sign = func(answer http.ResponseWriter, _ dispatch.SignRequest) { answer.WriteHeader(http.StatusBadGateway) }
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/approvals/apr_1", token, body), http.StatusServiceUnavailable, "can't be decided now")
	before := decideTimes
	defer func() { decideTimes = before }()
	if productTimes.sign >= 5*time.Second {
		t.Errorf("a decision waits for %s", productTimes.sign)
	}
	decideTimes.sign = 50 * time.Millisecond
	proceed := make(chan struct{})
	w.signs(func(http.ResponseWriter, dispatch.SignRequest) { <-proceed }) // unless nobody asks in time
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/egress/revoke", token, `{"domain":"a"}`), http.StatusServiceUnavailable, "can't be decided now")
	close(proceed)
	decideTimes = before
	w.signs(func(answer http.ResponseWriter, _ dispatch.SignRequest) { // it is there, and says no
		answer.WriteHeader(http.StatusForbidden)
		answer.Write([]byte(`{"error":{"message":"no longer a member","name":"AuthError"}}`))
	})
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/approvals/apr_1", token, body), http.StatusForbidden, "no longer a member")
	w.signs(w.signAll)
	w.tunnels.Connect(nil)
	answer := w.do(http.MethodPost, "/sessions/ses_1/approvals/apr_1", token, body)
	if expect(t, answer, http.StatusServiceUnavailable, "not connected"); answer.Code != 503 {
		t.Error("the sandbox is away")
	}
}
