// Package passage carries requests to sandboxes over their tunnels, each on a
// stream of its own and for no longer than the grant it is made under.
package passage

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxPerPerson bounds what is under way for one person, who may have any
	// number of grants, and maxPassages what is at a relay; beyond them 429.
	maxPerPerson = 128
	maxPassages  = 8192
	// checkEvery is the longest time between two looks at the clock of the wall,
	// by which grants end and which may jump.
	checkEvery = time.Second
)

// Why a passage ended before its time; the cause of its context, and the label
// of the counter.
var (
	ErrExpired = protocol.Errorf(protocol.KindExpired, "the grant has expired")
	ErrRevoked = protocol.Errorf(protocol.KindUnauthenticated, "access was revoked")
	ErrLeaving = protocol.Errorf(protocol.KindRestarting, "the relay is going away")
)

// Passages are all that is under way to sandboxes under grants.
type Passages struct {
	// Now is the clock of the wall, by which grants end. Another one is set before
	// the first passage.
	Now func() time.Time

	// Static after construction.
	revoked *jws.RevocationSet
	metrics *metrics

	// Guarded by mu.
	mu       sync.Mutex
	open     map[*Passage]struct{}
	ofPerson map[protocol.UserID]int
	draining bool                                  // what has no end of its own is not let in
	kept     []interface{ CloseIdleConnections() } // whose streams may wait for requests
}

// A Passage is one request under way.
type Passage struct {
	// Static after construction.
	passages *Passages
	grant    *jws.Grant
	end      context.CancelCauseFunc
	timer    *time.Timer

	// Guarded by passages.mu.
	endless bool // it waits for events, so no drain waits for it
	ended   bool // it was cut
}

// New returns Passages that end with what revoked says is void, and are counted
// with reg.
func New(revoked *jws.RevocationSet, reg prometheus.Registerer) *Passages {
	p := &Passages{
		Now: time.Now, revoked: revoked, open: map[*Passage]struct{}{}, ofPerson: map[protocol.UserID]int{},
		metrics: newMetrics(reg),
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_passages", Help: "Requests under way to sandboxes, and streams of their events.",
	}, p.count))
	revoked.OnChange(p.review)
	return p
}

func (p *Passages) count() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(len(p.open))
}

// Enter begins a passage under g, which was just verified. Its context ends with
// ctx, with g, or with the relay; the context's cause says which. Leave must be
// called. It fails with kind expired, unauthenticated, too_many or restarting.
func (p *Passages) Enter(ctx context.Context, g *jws.Grant) (context.Context, *Passage, error) {
	left := g.Expires().Sub(p.Now())
	if left <= 0 {
		return nil, nil, ErrExpired
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.draining:
		return nil, nil, ErrLeaving
	case p.revoked.Grant(g):
		return nil, nil, ErrRevoked
	case p.ofPerson[g.Subject] >= maxPerPerson, len(p.open) >= maxPassages:
		return nil, nil, protocol.Errorf(protocol.KindTooMany, "too many requests are under way")
	}
	ctx, end := context.WithCancelCause(ctx)
	one := &Passage{passages: p, grant: g, end: end}
	one.timer = time.AfterFunc(time.Hour, one.check)
	one.timer.Reset(min(left, checkEvery))
	p.open[one] = struct{}{}
	p.ofPerson[g.Subject]++
	return ctx, one, nil
}

// check ends a passage whose grant has expired.
func (one *Passage) check() {
	p := one.passages
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.open[one]; !open {
		return
	}
	left := one.grant.Expires().Sub(p.Now())
	if left <= 0 {
		one.cut(ErrExpired, cutExpired)
		return
	}
	one.timer.Reset(min(left, checkEvery))
}

// Leave ends the passage.
func (one *Passage) Leave() {
	p := one.passages
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.open[one]; !open {
		return
	}
	delete(p.open, one)
	if p.ofPerson[one.grant.Subject]--; p.ofPerson[one.grant.Subject] == 0 {
		delete(p.ofPerson, one.grant.Subject)
	}
	one.timer.Stop()
	one.end(nil)
	if p.draining {
		p.closeKept()
	}
}

// keep has a drain close the streams that wait for requests.
func (p *Passages) keep(streams interface{ CloseIdleConnections() }) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, streams)
}

// closeKept closes the streams that wait for requests. The caller holds mu.
func (p *Passages) closeKept() {
	for _, streams := range p.kept {
		streams.CloseIdleConnections()
	}
}

// Endless says that the passage has no end of its own, so that a drain ends it
// rather than wait.
func (one *Passage) Endless() {
	p := one.passages
	p.mu.Lock()
	defer p.mu.Unlock()
	one.endless = true
	if p.draining {
		one.cut(ErrLeaving, cutClosing)
	}
}

// cut ends the passage. The caller holds passages.mu.
func (one *Passage) cut(cause error, reason string) {
	if !one.ended {
		one.ended = true
		one.passages.metrics.cut.WithLabelValues(reason).Inc()
		one.end(cause)
	}
}

// review ends what is under way under grants that were revoked.
func (p *Passages) review() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.open {
		if p.revoked.Grant(one.grant) {
			one.cut(ErrRevoked, cutRevoked)
		}
	}
}

// Drain ends what has no end of its own, and lets nothing in any more.
func (p *Passages) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for one := range p.open {
		if one.endless {
			one.cut(ErrLeaving, cutClosing)
		}
	}
	p.closeKept()
}
