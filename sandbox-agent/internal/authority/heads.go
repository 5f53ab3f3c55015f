package authority

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
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

// An AuditLog says where it ends, signed by the device key. Sequence 0: nothing
// is recorded yet.
type AuditLog interface {
	Head() (head protocol.AuditHead, signature []byte, err error)
}

// Heads tells the control plane where the audit log ends.
type Heads struct {
	// Static after construction.
	audit       AuditLog
	credentials *Credentials
	changed     chan<- struct{}
	log         *slog.Logger

	posted uint64 // the newest sequence; owned by keep

	mu      sync.Mutex
	problem string // guarded by mu
}

// Problem returns why the control plane refuses the audit log's head, empty when
// it doesn't. It holds until a head is accepted.
func (h *Heads) Problem() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.problem
}

// keep posts the head at each interval when it has changed, until ctx ends.
func (h *Heads) keep(ctx context.Context) {
	ticker := time.NewTicker(headInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		h.look(ctx)
	}
}

// look posts the head unless that was posted already.
func (h *Heads) look(ctx context.Context) {
	head, signature, err := h.audit.Head()
	if err == nil && (head.Sequence == 0 || head.Sequence == h.posted) {
		return
	}
	if err == nil {
		err = h.post(ctx, head, signature)
	}
	switch {
	case err == nil:
		h.note("")
		h.posted = head.Sequence
		return
	case controlplane.Refused(err) && protocol.KindOf(err) == protocol.KindConflict:
		h.note("the audit log does not go on where the control plane saw it last (" +
			protocol.AsError(err).Message + "): records were removed or replaced; what happens is recorded, but not vouched for")
	}
	if ctx.Err() == nil {
		h.log.Warn("audit head not posted", "sequence", head.Sequence, "err", err)
	}
}

func (h *Heads) note(problem string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.problem != problem {
		h.problem = problem
		wake(h.changed)
	}
}

func (h *Heads) post(ctx context.Context, head protocol.AuditHead, signature []byte) error {
	body, err := json.Marshal(protocol.AuditHeadRequest{
		Certificate: h.credentials.certificate().token, Head: head, Signature: signature,
	})
	if err != nil {
		return err
	}
	return h.credentials.client.Post(ctx, headPath, nil, body)
}
