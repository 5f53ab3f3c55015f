// Package reverseproxy forwards requests to sandboxes through their tunnels,
// each on a stream of its own, until its grant ends at the latest.
package reverseproxy

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxPerPerson bounds the open requests of one person, who may have any number
	// of grants, and maxRequests those of a relay; beyond them 429.
	maxPerPerson = 128
	maxRequests  = 8192
)

// ErrLeaving ends requests that a drain doesn't wait for.
var ErrLeaving = protocol.Errorf(protocol.KindRestarting, "the relay is going away")

// Requests are all open requests to sandboxes under grants.
type Requests struct {
	// Static after construction.
	grants  *lifetime.Grants
	metrics *metrics

	// Guarded by mu.
	mu       sync.Mutex
	open     map[*Request]struct{}
	ofPerson map[protocol.UserID]int
	draining bool                                  // endless requests are refused
	kept     []interface{ CloseIdleConnections() } // with idle streams
}

// A Request is one open request.
type Request struct {
	// Static after construction.
	requests *Requests
	user     protocol.UserID
	use      *lifetime.Use
	end      context.CancelCauseFunc

	// Guarded by requests.mu.
	endless bool // it waits for events, so a drain ends it
	ended   bool // it was cut, or has left
}

// New returns Requests under grants, which are counted with reg.
func New(grants *lifetime.Grants, reg prometheus.Registerer) *Requests {
	p := &Requests{
		grants: grants, open: map[*Request]struct{}{}, ofPerson: map[protocol.UserID]int{},
		metrics: newMetrics(reg),
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_passages", Help: "Requests under way to sandboxes, and streams of their events.",
	}, p.count))
	return p
}

func (p *Requests) count() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(len(p.open))
}

// Begin begins a request under g, which was just verified. Its context ends
// with ctx, with g, or with the relay; the context's cause says which. The
// caller must call End. It fails with kind expired, unauthenticated, too_many
// or restarting.
func (p *Requests) Begin(ctx context.Context, g *jws.Grant) (context.Context, *Request, error) {
	ctx, end := context.WithCancelCause(ctx)
	one := &Request{requests: p, user: g.Subject, end: end}
	use, err := p.grants.Begin(g, one.ends)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, lifetime.ErrExpired):
	case p.draining:
		err = ErrLeaving
	case err == nil && (p.ofPerson[g.Subject] >= maxPerPerson || len(p.open) >= maxRequests):
		err = protocol.Errorf(protocol.KindTooMany, "too many requests are under way")
	}
	if err != nil {
		use.Stop()
		end(err)
		return nil, nil, err
	}
	one.use = use
	p.open[one] = struct{}{}
	p.ofPerson[g.Subject]++
	return ctx, one, nil
}

// Renew has the request go on under a newer grant of its user, which was just
// verified.
func (one *Request) Renew(g *jws.Grant) error { return one.use.Renew(g) }

// ends ends a request when its grant ends.
func (one *Request) ends(cause error) {
	reason := cutExpired
	if errors.Is(cause, lifetime.ErrRevoked) {
		reason = cutRevoked
	}
	one.requests.mu.Lock()
	defer one.requests.mu.Unlock()
	one.cut(cause, reason)
}

// End ends the request.
func (one *Request) End() {
	p := one.requests
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.open[one]; !open {
		return
	}
	delete(p.open, one)
	if p.ofPerson[one.user]--; p.ofPerson[one.user] == 0 {
		delete(p.ofPerson, one.user)
	}
	one.use.Stop()
	one.ended = true
	one.end(nil)
	if p.draining {
		p.closeKept()
	}
}

// keep registers streams that a drain closes when idle.
func (p *Requests) keep(streams interface{ CloseIdleConnections() }) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, streams)
}

// closeKept closes the idle streams. The caller holds mu.
func (p *Requests) closeKept() {
	for _, streams := range p.kept {
		streams.CloseIdleConnections()
	}
}

// Endless marks a request that doesn't end by itself, so that a drain ends it.
func (one *Request) Endless() {
	p := one.requests
	p.mu.Lock()
	defer p.mu.Unlock()
	one.endless = true
	if p.draining {
		one.cut(ErrLeaving, cutClosing)
	}
}

// cut ends the request. The caller holds requests.mu.
func (one *Request) cut(cause error, reason string) {
	if !one.ended {
		one.ended = true
		one.requests.metrics.cut.WithLabelValues(reason).Inc()
		one.end(cause)
	}
}

// Drain ends endless requests and refuses new ones.
func (p *Requests) Drain() {
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
