package link

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// checkEvery is the longest time between two looks at the clock of the wall, by
// which grants end and which may jump.
const checkEvery = time.Second

var (
	errGrantExpired = protocol.Errorf(protocol.KindExpired, "the grant has expired")
	errGrantRevoked = protocol.Errorf(protocol.KindUnauthenticated, "the grant was revoked")
)

// grantEnds ends what is done under grants together with them. Its zero value
// is ready and knows of no revocations.
type grantEnds struct {
	revoked *jws.RevocationSet // nil: nothing is; static once streams are served

	mu   sync.Mutex
	uses map[*grantUse]struct{} // guarded by mu
}

// A grantUse is something that is done under a grant.
type grantUse struct {
	grant *jws.Grant
	end   context.CancelCauseFunc
}

// Heed has streams that live under one grant end as soon as revoked says that
// it is void. It is called before the first Serve.
func (l *Link) Heed(revoked *jws.RevocationSet) {
	l.ends.revoked = revoked
	revoked.OnChange(l.ends.review)
}

// review ends what is done under grants that were revoked.
func (e *grantEnds) review() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for use := range e.uses {
		if e.revoked.Grant(use.grant) {
			use.end(errGrantRevoked)
		}
	}
}

// under returns a context that ends with g, which was just verified: when it is
// revoked, or past its time by more than the skew that its verification allows
// for. The context's cause says which. stop must be called.
func (e *grantEnds) under(ctx context.Context, g *jws.Grant) (under context.Context, stop func()) {
	under, end := context.WithCancelCause(ctx)
	use := &grantUse{g, end}
	e.mu.Lock()
	if e.uses == nil {
		e.uses = map[*grantUse]struct{}{}
	}
	e.uses[use] = struct{}{}
	if e.revoked != nil && e.revoked.Grant(g) { // between its verification and now
		end(errGrantRevoked)
	}
	e.mu.Unlock()
	deadline := g.Expires().Add(jws.Skew)
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		left := time.Until(deadline)
		if left <= 0 {
			end(errGrantExpired)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, used := e.uses[use]; used {
			timer.Reset(min(left, checkEvery))
		}
	})
	timer.Reset(min(max(time.Until(deadline), 0), checkEvery))
	return under, func() {
		e.mu.Lock()
		delete(e.uses, use)
		timer.Stop()
		e.mu.Unlock()
		end(nil)
	}
}
