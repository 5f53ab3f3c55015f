package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
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
		posted = a.keepHead(ctx, posted)
	}
}

// keepHead posts the head of the audit log unless that was posted already, and
// returns the sequence of the newest posted.
func (a *Agent) keepHead(ctx context.Context, posted uint64) uint64 {
	head, signature, err := a.audit.Head()
	if err == nil && (head.Sequence == 0 || head.Sequence == posted) {
		return posted
	}
	if err == nil {
		err = a.postHead(ctx, head, signature)
	}
	switch {
	case err == nil:
		a.noteHead("")
		return head.Sequence
	case controlplane.Refused(err) && protocol.KindOf(err) == protocol.KindConflict:
		a.noteHead("the audit log does not go on where the control plane saw it last (" +
			protocol.AsError(err).Message + "): records were removed or replaced; what happens is recorded, but not vouched for")
	}
	if ctx.Err() == nil {
		a.log.Warn("audit head not posted", "sequence", head.Sequence, "err", err)
	}
	return posted
}

// noteHead sets what is wrong with the head of the audit log, empty when
// nothing is, until the next.
func (a *Agent) noteHead(problem string) {
	if was := a.headProblem.Swap(&problem); was == nil || *was != problem {
		a.status.look()
	}
}

func (a *Agent) postHead(ctx context.Context, head protocol.AuditHead, signature []byte) error {
	body, err := json.Marshal(protocol.AuditHeadRequest{
		Certificate: a.holder.credential().token, Head: head, Signature: signature,
	})
	if err != nil {
		return err
	}
	return a.controlPlane.Post(ctx, headPath, nil, body)
}
