package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	headPath = "/audit/head"
	// headInterval is how often the control plane is told where the audit log
	// ends, so that nobody can cut off more than was written since.
	headInterval = 30 * time.Second
)

// keepHeads posts the head of the audit log at each interval when it has
// changed, until ctx ends.
func (a *Agent) keepHeads(ctx context.Context) {
	ticker := time.NewTicker(headInterval)
	defer ticker.Stop()
	var posted uint64
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		head, signature, err := a.audit.Head()
		if err == nil && (head.Sequence == 0 || head.Sequence == posted) {
			continue
		}
		if err == nil {
			err = a.postHead(ctx, head, signature)
		}
		if err == nil {
			posted = head.Sequence
		} else if ctx.Err() == nil {
			a.log.Warn("audit head not posted", "sequence", head.Sequence, "err", err)
		}
	}
}

func (a *Agent) postHead(ctx context.Context, head protocol.AuditHead, signature []byte) error {
	body, err := json.Marshal(protocol.AuditHeadRequest{
		Certificate: a.holder.credential().token, Head: head, Signature: signature,
	})
	if err != nil {
		return err
	}
	return a.controlPlane.post(ctx, headPath, nil, body)
}
