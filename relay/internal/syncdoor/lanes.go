package syncdoor

import (
	"context"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// abreast is how many bodies are on their way to one sandbox at the same time. Others
// wait, each with one piece: when fifty laptops push at once, a key that somebody types
// there must not queue behind all of them, neither here nor in the sandbox.
const abreast = 2

// lanes are the ways to sandboxes, those that anybody uses.
type lanes struct {
	mu sync.Mutex
	// Guarded by mu.
	to map[protocol.SandboxID]*lane
}

// A lane is the way to one sandbox.
type lane struct {
	places chan struct{} // those that are taken
	users  int           // guarded by lanes.mu
}

func newLanes() *lanes { return &lanes{to: map[protocol.SandboxID]*lane{}} }

// enter returns a place in the lane to a sandbox, which isn't taken yet. leave it.
func (l *lanes) enter(ctx context.Context, sandbox protocol.SandboxID) (p *place, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.to[sandbox]
	if to == nil {
		to = &lane{places: make(chan struct{}, abreast)}
		l.to[sandbox] = to
	}
	to.users++
	p = &place{lane: to, ctx: ctx}
	return p, func() {
		p.giveUp()
		l.mu.Lock()
		defer l.mu.Unlock()
		if to.users--; to.users == 0 {
			delete(l.to, sandbox)
		}
	}
}

// A place is one body's. It is safe for concurrent use.
type place struct {
	lane *lane
	ctx  context.Context // of the request

	mu sync.Mutex
	// Guarded by mu.
	taken bool
	left  bool
}

// take waits for the place. It fails with the request's context.
func (p *place) take() error {
	select {
	case p.lane.places <- struct{}{}:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left || p.taken { // the answer was there before the body's end
		<-p.lane.places
		return nil
	}
	p.taken = true
	return nil
}

// rest lets others go on while there is nothing to pass.
func (p *place) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		p.taken = false
		<-p.lane.places
	}
}

// giveUp is rest for good.
func (p *place) giveUp() {
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
	p.rest()
}
