// Package reverseproxy carries requests to sandboxes over their tunnels, each on a
// stream of its own and for no longer than the grant it is made under.
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
	// maxPerPerson bounds what is under way for one person, who may have any
	// number of grants, and maxRequests what is at a relay; beyond them 429.
	maxPerPerson = 128
	maxRequests  = 8192
)

// ErrLeaving is the cause of the end of a request that a drain doesn't wait for.
var ErrLeaving = protocol.Errorf(protocol.KindRestarting, "the relay is going away")

// Requests are all that is under way to sandboxes under grants.
type Requests struct {
	// Static after construction.
	grants  *lifetime.Grants
	metrics *metrics

	// Guarded by mu.
	mu       sync.Mutex
	open     map[*Request]struct{}
	ofPerson map[protocol.UserID]int
	draining bool                                  // what has no end of its own is not let in
	kept     []interface{ CloseIdleConnections() } // whose streams may wait for requests
}

// A Request is one request under way.
type Request struct {
	// Static after construction.
	requests *Requests
	user     protocol.UserID
	use      *lifetime.Use
	end      context.CancelCauseFunc

	// Guarded by requests.mu.
	endless bool // it waits for events, so no drain waits for it
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

// Begin begins a request under g, which was just verified. Its context ends with
// ctx, with g, or with the relay; the context's cause says which. End must be
// called. It fails with kind expired, unauthenticated, too_many or restarting.
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

// ends ends a request with its grant.
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

// keep has a drain close the streams that wait for requests.
func (p *Requests) keep(streams interface{ CloseIdleConnections() }) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, streams)
}

// closeKept closes the streams that wait for requests. The caller holds mu.
func (p *Requests) closeKept() {
	for _, streams := range p.kept {
		streams.CloseIdleConnections()
	}
}

// Endless says that the request has no end of its own, so that a drain ends it
// rather than wait.
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

// Drain ends what has no end of its own, and lets nothing in any more.
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
