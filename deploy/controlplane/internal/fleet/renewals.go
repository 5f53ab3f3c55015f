package fleet

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
)

// renewalsPerLife and renewalBurst bound how many certificates of one sandbox are
// valid at a time, and so what its revocation puts on the list.
const (
	renewalsPerLife = 16
	renewalBurst    = 8
)

// renewals bound how often sandboxes renew their certificates.
type renewals struct {
	life time.Duration // static: of certificates

	mu sync.Mutex
	// Guarded by mu. A sandbox gets here with a valid certificate only.
	sandboxes map[protocol.SandboxID]*rate.Limiter
}

func newRenewals(life time.Duration) *renewals {
	return &renewals{life: life, sandboxes: make(map[protocol.SandboxID]*rate.Limiter)}
}

// allow counts a renewal, unless there were too many.
func (r *renewals) allow(sandbox protocol.SandboxID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter := r.sandboxes[sandbox]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(r.life/renewalsPerLife), renewalBurst)
		r.sandboxes[sandbox] = limiter
	}
	return limiter.AllowN(now, 1)
}
