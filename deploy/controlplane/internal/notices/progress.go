package notices

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// noticesPerSecond and noticeBurst bound what one sandbox may tell: it can
	// have MaxApprovals waiting, each of which is asked for and ends.
	noticesPerSecond = 10
	noticeBurst      = 2 * protocol.MaxApprovals
	// maxNoticed bounds the approvals of a sandbox whose last notice is known.
	// One that is forgotten could be told of again for as long as a notice's
	// time isn't past.
	maxNoticed = noticeBurst + noticesPerSecond*int(2*protocol.ClockSkew/time.Second)
)

// progress is how far the notices of approvals have come.
type progress struct {
	mu        sync.Mutex
	sandboxes map[protocol.SandboxID]*sandboxNotices // guarded by mu; enrolled ones only
}

// sandboxNotices are those of one sandbox.
type sandboxNotices struct {
	limiter *rate.Limiter
	last    map[string]lastNotice // by approval id
	order   []string              // the ids, as they came
}

type lastNotice struct {
	revision uint64
	at       int64
}

func newProgress() *progress {
	return &progress{sandboxes: make(map[protocol.SandboxID]*sandboxNotices)}
}

// take reports whether a notice is news: of a later revision than the last one
// of its approval, and not signed before that. KindTooMany says that the sandbox
// tells too much.
func (p *progress) take(sandbox protocol.SandboxID, approval string, revision uint64, at int64, now time.Time) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.sandboxes[sandbox]
	if of == nil {
		of = &sandboxNotices{
			limiter: rate.NewLimiter(noticesPerSecond, noticeBurst), last: make(map[string]lastNotice),
		}
		p.sandboxes[sandbox] = of
	}
	if !of.limiter.AllowN(now, 1) {
		return false, protocol.Errorf(protocol.KindTooMany, "too many notices of approvals")
	}
	last, known := of.last[approval]
	if known && (revision <= last.revision || at < last.at) {
		return false, nil
	}
	if !known {
		if len(of.order) >= maxNoticed {
			delete(of.last, of.order[0])
			of.order = of.order[1:]
		}
		of.order = append(of.order, approval)
	}
	of.last[approval] = lastNotice{revision, at}
	return true, nil
}
