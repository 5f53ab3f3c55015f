package device

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
)

// What one sandbox may ask for, and how much of that may be under way.
const (
	requestsPerSecond = 20
	requestBurst      = 100
	requestsAtOnce    = 16
)

// limits bound what enrolled sandboxes ask for.
type limits struct {
	mu        sync.Mutex
	sandboxes map[protocol.SandboxID]*limit // guarded by mu
}

type limit struct {
	rate  *rate.Limiter
	slots chan struct{} // one element for each request under way
}

func newLimits() *limits { return &limits{sandboxes: make(map[protocol.SandboxID]*limit)} }

func (l *limits) enter(sandbox protocol.SandboxID, now time.Time) (leave func(), err error) {
	l.mu.Lock()
	of := l.sandboxes[sandbox]
	if of == nil {
		of = &limit{rate.NewLimiter(requestsPerSecond, requestBurst), make(chan struct{}, requestsAtOnce)}
		l.sandboxes[sandbox] = of
	}
	l.mu.Unlock()
	if !of.rate.AllowN(now, 1) {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many requests of this sandbox: at most %d per second", requestsPerSecond)
	}
	select {
	case of.slots <- struct{}{}:
		return func() { <-of.slots }, nil
	default:
		return nil, protocol.Errorf(protocol.KindTooMany, "%d requests of this sandbox are under way already", requestsAtOnce)
	}
}
