package sidebarapi

import (
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// answer is POST /sidebar-agent/answer {requestId, allow, revision?}: a person
// answers what an agent asks, as everywhere else. The seed has nothing like it:
// there agents don't ask.
func (a *API) answer(w http.ResponseWriter, r *http.Request) {
	c, err := a.bearer(r, protocol.CapApprove, changes)
	var b body
	if err == nil {
		b, err = readBody(w, r)
	}
	var do op.Op
	if err == nil {
		do, err = decision(b)
	}
	var done protocol.OpResult
	if err == nil {
		done, err = a.carryOut(r, c, do)
	}
	if err == nil && done.Approval == nil {
		err = errNonsense
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	outcome := answerLate
	if done.Applied {
		outcome = answerApplied
	}
	a.Metrics.Answers.WithLabelValues(outcome).Inc()
	// Who else has answered is said to those who may view, in the chat's entries.
	access.WriteJSON(w, http.StatusOK, map[string]any{"ok": true, "applied": done.Applied, "outcome": outcomeOf(done.Approval)})
}

// decision returns the operation that answers a question. A question has the same
// revision as long as it is open.
func decision(b body) (op.Op, error) {
	d := &op.ToolDecide{Approval: b.text("requestId"), Revision: 1, Decision: protocol.Deny}
	var allow bool
	if raw := b["allow"]; len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &allow) != nil {
		return op.Op{}, protocol.Errorf(protocol.KindInvalid, "allow must be true or false")
	}
	if allow {
		d.Decision = protocol.AllowOnce
	}
	switch revision, err := b.number("revision"); {
	case err != nil || revision < 0:
		return op.Op{}, protocol.Errorf(protocol.KindInvalid, "revision is that of the question")
	case revision > 0:
		d.Revision = uint64(revision)
	}
	if !protocol.ValidID(d.Approval) {
		return op.Op{}, protocol.Errorf(protocol.KindInvalid, "Invalid requestId")
	}
	return op.Op{Kind: op.KindToolDecide, Body: d}, nil
}

// outcomeOf is what became of a question, in the words of the chat's entries.
func outcomeOf(a *protocol.Approval) string {
	switch {
	case a.State == protocol.ApprovalDecided && a.Decision.Allows():
		return op.QuestionAllowed
	case a.State == protocol.ApprovalDecided:
		return op.QuestionDenied
	case a.State == protocol.ApprovalExpired:
		return op.QuestionTimeout
	}
	return op.QuestionWithdrawn
}
