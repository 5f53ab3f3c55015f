package sandboxapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// errUndecidable is the answer while the control plane, which signs every
// decision, is unreachable.
var errUndecidable = protocol.Errorf(protocol.KindUnavailable, "it can't be decided now: the control plane doesn't answer")

// A decisionRequest is the body of POST …/approvals/{aid}.
type decisionRequest struct {
	Kind     protocol.ApprovalKind `json:"kind"` // absent: tool
	Revision uint64                `json:"revision"`
	Decision protocol.Decision     `json:"decision"`

	// Of a tool, as in op.ToolDecide.
	UpdatedInput json.RawMessage `json:"updatedInput"`
	Message      string          `json:"message"`
	Remember     string          `json:"remember"`
}

// op returns the operation that decides approval id.
func (d *decisionRequest) op(id string) (op.Op, error) {
	ofTool := len(d.UpdatedInput) > 0 || d.Message != "" || d.Remember != ""
	switch {
	case d.Kind == protocol.ApprovalTool, d.Kind == "":
		if d.Decision == "allow" { // what clients of chats call it
			d.Decision = protocol.AllowOnce
		}
		return op.Op{Kind: op.KindToolDecide, Body: &op.ToolDecide{
			Approval: id, Revision: d.Revision, Decision: d.Decision,
			UpdatedInput: d.UpdatedInput, Message: d.Message, Remember: d.Remember,
		}}, nil
	case ofTool:
		return op.Op{}, protocol.Errorf(protocol.KindInvalid, "updatedInput, message and remember are about tools")
	case d.Kind == protocol.ApprovalEgress:
		return op.Op{Kind: op.KindEgressDecide, Body: &op.EgressDecide{ApprovalID: id, Revision: d.Revision, Decision: d.Decision}}, nil
	case d.Kind == protocol.ApprovalBroker:
		return op.Op{Kind: op.KindBrokerDecide, Body: &op.BrokerDecide{ApprovalID: id, Revision: d.Revision, Decision: d.Decision}}, nil
	}
	return op.Op{}, protocol.Errorf(protocol.KindInvalid, "kind: egress, broker or tool")
}

// A decided answers a decision: the approval's present state, and whether this
// request decided it.
type decided struct {
	Approval *protocol.Approval `json:"approval,omitempty"` // absent: a rule was made
	Applied  bool               `json:"applied"`
}

// decide is POST /sessions/{sid}/approvals/{aid}: 200 {approval, applied}.
func (a *API) decide(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapApprove)
	var body decisionRequest
	if err == nil {
		err = access.ReadJSON(w, r, &body)
	}
	var decision op.Op
	if err == nil {
		decision, err = body.op(r.PathValue("aid"))
	}
	if err == nil {
		err = decision.Body.Check()
	}
	var result protocol.OpResult
	if err == nil {
		result, err = a.changeWith(r, token, decision, target(r, grant), decideTimes)
	}
	if err != nil {
		a.refuse(w, undecidable(err))
		return
	}
	access.WriteJSON(w, http.StatusOK, decided{result.Approval, result.Applied})
}

// approveEgress is POST /sessions/{sid}/egress/approve (seed 001): 200
// {approval, applied}. request_id names an approval; without it the request
// makes a rule for domain.
func (a *API) approveEgress(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapApprove)
	var body struct {
		Domain    string            `json:"domain"`
		RequestID string            `json:"request_id"`
		Revision  uint64            `json:"revision"` // absent: 1, as it was asked
		Decision  protocol.Decision `json:"decision"`
	}
	if err == nil {
		err = access.ReadJSON(w, r, &body)
	}
	decision := op.EgressDecide{Decision: body.Decision}
	if body.RequestID != "" { // domain is for people only; the approval knows it
		decision.ApprovalID, decision.Revision = body.RequestID, max(body.Revision, 1)
	} else {
		decision.Pattern = body.Domain
	}
	if err == nil {
		err = decision.Check()
	}
	var result protocol.OpResult
	if err == nil {
		result, err = a.changeWith(r, token, op.Op{Kind: op.KindEgressDecide, Body: &decision}, target(r, grant), decideTimes)
	}
	if err != nil {
		a.refuse(w, undecidable(err))
		return
	}
	access.WriteJSON(w, http.StatusOK, decided{result.Approval, result.Applied || decision.Rule()})
}

// revokeEgress is POST /sessions/{sid}/egress/revoke {domain} (seed 001) or
// {pattern}: 204.
func (a *API) revokeEgress(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapApprove)
	var body struct {
		Domain  string `json:"domain"`
		Pattern string `json:"pattern"`
	}
	if err == nil {
		err = access.ReadJSON(w, r, &body)
	}
	pattern := body.Pattern
	if pattern == "" {
		pattern = body.Domain
	}
	if err == nil && (pattern == "" || body.Pattern != "" && body.Domain != "") {
		err = protocol.Errorf(protocol.KindInvalid, "either domain or pattern names the rule")
	}
	if err == nil {
		revocation := op.Op{Kind: op.KindEgressRevoke, Body: &op.EgressRevoke{Pattern: pattern}}
		_, err = a.changeWith(r, token, revocation, target(r, grant), decideTimes)
	}
	if err != nil {
		a.refuse(w, undecidable(err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// undecidable tells people that nothing can be signed now.
func undecidable(err error) error {
	var unsigned *unsignedError
	if errors.As(err, &unsigned) && protocol.KindOf(err) == protocol.KindUnavailable {
		return errUndecidable
	}
	return err
}
