package sidebarapi

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// perSecond and burst bound one person's requests, of each group. A panel of the
	// seed asks four times a second while it waits for an answer, and a person may
	// have several.
	perSecond = 20
	burst     = 40
	// retryAfter tells who is refused how many seconds to wait.
	retryAfter = "1"
	// forgetAfter is how long a person's pace is remembered: then it is as good as
	// new.
	forgetAfter = 2 * burst / perSecond * time.Second
)

var errTooOften = protocol.Errorf(protocol.KindTooMany, "too many requests: at most %d in a second", perSecond)

// A group is of requests that are bounded together: who polls too often can still
// stop an agent.
type group uint8

const (
	polls group = iota
	streams
	changes
)

// A pace bounds how often people ask. Its zero value is ready.
type pace struct {
	mu sync.Mutex
	// Guarded by mu.
	of    map[asker]*asking
	swept time.Time
}

// An asker is a person, in one of the groups.
type asker struct {
	user protocol.UserID
	in   group
}

type asking struct {
	limit *rate.Limiter
	last  time.Time
}

// allow reports whether somebody may ask now.
func (p *pace) allow(who asker, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) >= forgetAfter {
		p.sweep(now)
	}
	a := p.of[who]
	if a == nil {
		if p.of == nil {
			p.of = map[asker]*asking{}
		}
		a = &asking{limit: rate.NewLimiter(perSecond, burst)}
		p.of[who] = a
	}
	a.last = now
	return a.limit.AllowN(now, 1)
}

// sweep forgets who hasn't asked for a while. The caller holds mu.
func (p *pace) sweep(now time.Time) {
	p.swept = now
	for who, a := range p.of {
		if now.Sub(a.last) >= forgetAfter {
			delete(p.of, who)
		}
	}
}
