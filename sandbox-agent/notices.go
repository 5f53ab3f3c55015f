package agent

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	approvalsPath = "/approvals"
	// maxNotices bounds the changes of approvals that the control plane has not
	// been told of; the oldest go first.
	maxNotices = 1024
)

// notices tell the control plane of changes of approvals, in their order, so
// that it can tell those who aren't looking. Nothing depends on them.
type notices struct {
	// Static after construction.
	agent *Agent
	wake  chan struct{} // 1 element

	// Guarded by mu.
	mu      sync.Mutex
	queue   []protocol.Approval
	dropped uint64 // for want of room
	logged  time.Time
}

func newNotices(a *Agent) *notices { return &notices{agent: a, wake: make(chan struct{}, 1)} }

// add queues a change. It waits for nothing.
func (n *notices) add(a protocol.Approval) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queue = append(n.queue, a); len(n.queue) > maxNotices {
		n.queue = n.queue[1:]
		n.dropped++
		if now := time.Now(); now.Sub(n.logged) >= dropInterval {
			n.logged = now
			n.agent.log.Warn("notices of approvals dropped", "since_start", n.dropped)
		}
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notices) first() (protocol.Approval, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return protocol.Approval{}, false
	}
	return n.queue[0], true
}

// done takes a out, unless it has been dropped.
func (n *notices) done(a protocol.Approval) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) > 0 && n.queue[0].ID == a.ID && n.queue[0].Revision == a.Revision {
		n.queue = n.queue[1:]
	}
}

// keep posts notices until ctx ends.
func (n *notices) keep(ctx context.Context) {
	pause := pauses{longest: longestCallbackPause}
	for {
		next, ok := n.first()
		if !ok {
			select {
			case <-n.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := n.post(ctx, next)
		switch {
		case err == nil:
			pause.reset()
			n.done(next)
		case ctx.Err() != nil:
			return
		case final(err) && protocol.KindOf(err) != protocol.KindUnauthenticated: // that may be the certificate
			n.agent.log.Warn("notice of an approval refused", "id", next.ID, "err", err)
			n.done(next)
		default:
			if sleep(ctx, pause.next()) != nil {
				return
			}
		}
	}
}

func (n *notices) post(ctx context.Context, approval protocol.Approval) error {
	body, err := json.Marshal(approval)
	if err != nil {
		return err
	}
	at := time.Now().UnixMilli()
	signature, err := n.agent.device.Sign(protocol.ApprovalTranscript(n.agent.enrolment.SandboxID, body, at))
	if err != nil {
		return err
	}
	notice, err := json.Marshal(protocol.ApprovalNotice{
		Certificate: n.agent.holder.credential().token, Approval: body, At: at, Signature: signature,
	})
	if err != nil {
		return err
	}
	return n.agent.controlPlane.post(ctx, approvalsPath, nil, notice)
}
