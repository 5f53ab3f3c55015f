package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

const (
	approvalsPath    = "/approvals"
	ptyCompletedPath = "/pty-completed"
)

// postApproval tells the control plane of a change of an approval, so that it
// can tell those who aren't looking.
func (a *Agent) postApproval(ctx context.Context, approval protocol.Approval) error {
	body, err := json.Marshal(approval)
	if err != nil {
		return err
	}
	at := time.Now().UnixMilli()
	signature, err := a.device.Sign(protocol.ApprovalTranscript(a.enrolment.SandboxID, body, at))
	if err != nil {
		return err
	}
	notice, err := json.Marshal(protocol.ApprovalNotice{
		Certificate: a.holder.credential().token, Approval: body, At: at, Signature: signature,
	})
	if err != nil {
		return err
	}
	return a.controlPlane.Post(ctx, approvalsPath, nil, notice)
}

// postTurn tells the control plane that a coding agent has finished a turn.
func (a *Agent) postTurn(ctx context.Context, done protocol.PTYCompleted) error {
	body, err := json.Marshal(done)
	if err != nil {
		return err
	}
	_, status, err := a.signed(ctx, "POST", ptyCompletedPath, body)
	if err != nil {
		return err
	}
	if status >= 300 {
		return controlplane.RefusedWith(status, "")
	}
	return nil
}
