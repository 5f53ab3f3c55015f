package bridge

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A latch is something that happens once.
type latch struct {
	once sync.Once
	c    chan struct{} // closed when it has
}

func newLatch() latch { return latch{c: make(chan struct{})} }

func (l *latch) happen() { l.once.Do(func() { close(l.c) }) }

// A pause is what passes between attempts: longer each time.
type pause struct {
	next, most time.Duration
}

const (
	firstPause = 20 * time.Millisecond
	slowPause  = 5 * time.Second // between attempts with a secret that was refused
)

func (b *bridge) newPause() *pause { return &pause{firstPause, b.limits.pause} }

// after begins anew behind a stream that lived, with what the server asked for.
func (p *pause) after(retry, lived time.Duration) {
	if lived > p.most {
		p.next = firstPause
	}
	if retry > 0 {
		p.next = min(max(retry, firstPause), 10*p.most)
	}
}

// heed makes p longer when err won't pass by itself soon.
func (p *pause) heed(err error) {
	if errors.Is(err, errForbidden) && p.most < slowPause {
		p.most = slowPause
	}
}

// wait waits and reports whether ctx still goes on.
func (p *pause) wait(ctx context.Context) bool {
	d := p.next - time.Duration(rand.Int64N(int64(p.next)/4+1)) // not all bridges at once
	p.next = min(2*p.next, p.most)
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
