package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func approvals(c *program.Command) {
	c.Describe(`Decide what a sandbox asks for. What waits for a decision is with the sandbox
alone: the console shows it, GET /sessions/{sid}/approvals at a relay lists it,
and --approval-webhook of "serve" tells of it.`)
	c.Sub("decide", "Answer an approval", decideApproval)
}

func decideApproval(c *program.Command) {
	var s sending
	var kind, id, decision string
	var revision int
	s.flags(c, `Answer APPROVAL with DECISION: allow_once, allow_always, deny or deny_always.
Once is what waits now; always is a rule of the session as well. A tool has no
deny_always. --revision is
that of the approval as it was shown, 1 for one that waits: the sandbox takes the
first decision, and answers a later one with how the approval stands.`)
	c.String(&kind, "kind", string(protocol.ApprovalEgress), "egress (a connection to a host), broker (a secret for a host) or tool (of a coding agent)")
	c.Int(&revision, "revision", 1, "revision of the approval")
	c.Require("session")
	c.Arg(&id, "APPROVAL")
	c.Arg(&decision, "DECISION")
	c.Run(func(ctx context.Context, env *program.Env) error {
		if revision < 1 {
			return fmt.Errorf("--revision %d: want 1 or more", revision)
		}
		data, err := decisionOp(protocol.ApprovalKind(kind), id, uint64(revision), protocol.Decision(decision))
		if err != nil {
			return err
		}
		return s.send(ctx, env, data)
	})
}

// decisionOp returns the operation that answers an approval.
func decisionOp(kind protocol.ApprovalKind, id string, revision uint64, d protocol.Decision) (json.RawMessage, error) {
	switch kind {
	case protocol.ApprovalEgress:
		return json.Marshal(op.Op{Kind: op.KindEgressDecide, Body: &op.EgressDecide{ApprovalID: id, Revision: revision, Decision: d}})
	case protocol.ApprovalBroker:
		return json.Marshal(op.Op{Kind: op.KindBrokerDecide, Body: &op.BrokerDecide{ApprovalID: id, Revision: revision, Decision: d}})
	case protocol.ApprovalTool:
		return json.Marshal(op.Op{Kind: op.KindToolDecide, Body: &op.ToolDecide{Approval: id, Revision: revision, Decision: d}})
	}
	return nil, fmt.Errorf("--kind %q: want egress, broker or tool", string(kind))
}
