package sidebarapi

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// An answer becomes the operation by which questions are answered everywhere, and
// nothing that isn't clearly a yes or a no becomes either.
func TestAnswer(t *testing.T) {
	w := newWorld(t)
	may := w.grant("alice", protocol.CapApprove)
	for _, c := range []struct {
		body   string
		status int
		answer string
		op     string
	}{
		{`{"requestId":"apr_1","allow":true}`, 200, `{"applied":true,"ok":true,"outcome":"allowed"}`, `{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once"}`},
		{`{"requestId":"apr_1","allow":false,"tabId":2}`, 200, `{"applied":true,"ok":true,"outcome":"denied"}`, `{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny"}`},
		{`{"requestId":"apr_1","allow":true,"revision":3}`, 200, `{"applied":true,"ok":true,"outcome":"allowed"}`, `{"kind":"tool.decide","approval":"apr_1","revision":3,"decision":"allow_once"}`},
		{`{"requestId":"apr_1"}`, 400, `{"error":"allow must be true or false"}`, ""},
		{`{"requestId":"apr_1","allow":null}`, 400, `{"error":"allow must be true or false"}`, ""},
		{`{"requestId":"apr_1","allow":"false"}`, 400, `{"error":"allow must be true or false"}`, ""},
		{`{"requestId":"apr_1","allow":1}`, 400, `{"error":"allow must be true or false"}`, ""},
		{`{"requestId":"apr_1","allow":true,"revision":-1}`, 400, `{"error":"revision is that of the question"}`, ""},
		{`{"requestId":"apr_1","allow":true,"revision":"1"}`, 400, `{"error":"revision is that of the question"}`, ""},
		{`{"requestId":7,"allow":true}`, 400, `{"error":"Invalid requestId"}`, ""},
		{`{"requestId":"../x","allow":true}`, 400, `{"error":"Invalid requestId"}`, ""},
		{`{"requestId":"` + strings.Repeat("a", 200) + `","allow":true}`, 400, `{"error":"Invalid requestId"}`, ""},
		{``, 400, `{"error":"allow must be true or false"}`, ""},
	} {
		decision := protocol.Deny
		if strings.Contains(c.answer, "allowed") {
			decision = protocol.AllowOnce
		}
		w.says(decision, protocol.ApprovalDecided, true)
		status, answer, _ := w.ask("POST", "/sidebar-agent/answer", may, c.body, "Origin", extension)
		if signed, _ := w.log(); status != c.status || answer != c.answer || signed != c.op {
			t.Errorf("%.80s: %d %s, signed %s", c.body, status, answer, signed)
		}
	}
	if n := testutil.ToFloat64(w.api.Metrics.Answers.WithLabelValues(answerApplied)); n != 3 {
		t.Errorf("%g were counted", n)
	}
}

// An answer that comes late says what became of the question, but not by whom: who
// may answer needn't be one who may look.
func TestLateAnswer(t *testing.T) {
	w := newWorld(t)
	may := w.grant("alice", protocol.CapApprove)
	for state, want := range map[protocol.ApprovalState]string{
		protocol.ApprovalDecided: "allowed", protocol.ApprovalExpired: "timeout", protocol.ApprovalCancelled: "withdrawn",
	} {
		w.says(protocol.AllowAlways, state, false)
		status, answer, _ := w.ask("POST", "/sidebar-agent/answer", may, `{"requestId":"apr_1","allow":false}`)
		if status != 200 || answer != `{"applied":false,"ok":true,"outcome":"`+want+`"}` {
			t.Errorf("%s: %d %s", state, status, answer)
		}
	}
	if n := testutil.ToFloat64(w.api.Metrics.Answers.WithLabelValues(answerLate)); n != 3 {
		t.Errorf("%g were counted", n)
	}
	w.executes(func(string) (op.SidebarResult, error) {
		return op.SidebarResult{}, protocol.Errorf(protocol.KindNotFound, "no such approval")
	})
	if status, answer, _ := w.ask("POST", "/sidebar-agent/answer", may, `{"requestId":"apr_2","allow":true}`); status != 404 || answer != `{"error":"no such approval"}` {
		t.Errorf("%d %s", status, answer)
	}
}

// says has the sandbox say what became of a question.
func (w *world) says(decision protocol.Decision, state protocol.ApprovalState, applied bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &protocol.Approval{ID: "apr_1", Revision: 2, Kind: protocol.ApprovalTool, State: state, UserID: "usr_bob"}
	if state == protocol.ApprovalDecided {
		a.Decision = decision
	}
	w.decided = protocol.OpResult{Approval: a, Applied: applied}
}
