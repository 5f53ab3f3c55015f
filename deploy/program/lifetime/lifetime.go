// Package lifetime ends what is done under a grant when the grant expires or is
// revoked. A relay and an agent each have one [Grants] for all their streams
// and sockets.
package lifetime

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// checkEvery is the longest time between two checks of the wall clock, which
// may jump.
const checkEvery = time.Second

// Why a use ends.
var (
	ErrExpired = protocol.Errorf(protocol.KindExpired, "the grant has expired")
	ErrRevoked = protocol.Errorf(protocol.KindUnauthenticated, "access was revoked")
)

// Options configure [Grants].
type Options struct {
	Revoked *jws.RevocationSet // nil: nothing is revoked
	// Skew is how long an expired grant still counts. Those who verify grants with
	// a skew need it, so that a grant that was just accepted doesn't end at once.
	Skew time.Duration
	Now  func() time.Time // the wall clock; nil: time.Now
}

// Grants are the grants in use. It is safe for concurrent use.
type Grants struct {
	o Options // static after construction

	// Guarded by mu.
	mu    sync.Mutex
	uses  map[*Use]struct{}
	timer *time.Timer // runs look; nil before the first use
	due   time.Time   // when it fires, by the monotonic clock; zero: stopped
}

// A Use is an activity under a grant.
type Use struct {
	// Static after construction.
	grants *Grants
	end    func(cause error)

	// Guarded by grants.mu.
	grant *jws.Grant
	ended bool // it has expired, and end was called
}

// New returns Grants without uses. It must be called before o.Revoked is used.
func New(o Options) *Grants {
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Grants{o: o, uses: map[*Use]struct{}{}}
	if o.Revoked != nil {
		o.Revoked.OnChange(g.review)
	}
	return g
}

// Check returns [ErrExpired] or [ErrRevoked] if a grant is no longer valid.
func (g *Grants) Check(grant *jws.Grant) error {
	switch {
	case g.Over(grant):
		return ErrExpired
	case g.Revoked(grant):
		return ErrRevoked
	}
	return nil
}

// Over reports whether a grant has expired.
func (g *Grants) Over(grant *jws.Grant) bool { return g.left(grant) <= 0 }

// Revoked reports whether a grant was revoked.
func (g *Grants) Revoked(grant *jws.Grant) bool {
	return g.o.Revoked != nil && g.o.Revoked.Grant(grant)
}

// left returns the time until a grant expires.
func (g *Grants) left(grant *jws.Grant) time.Duration { return g.leftAt(grant, g.o.Now()) }

func (g *Grants) leftAt(grant *jws.Grant, now time.Time) time.Duration {
	return grant.Expires().Add(g.o.Skew).Sub(now)
}

// Begin starts a use of a grant that was just verified. When the grant ends,
// end is called with [ErrExpired] or [ErrRevoked]; with ErrRevoked before the
// call that revoked it returns. end may be called more than once, the last time
// possibly during Stop. Begin fails with the same errors. The caller must call
// Stop.
func (g *Grants) Begin(grant *jws.Grant, end func(cause error)) (*Use, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.Check(grant); err != nil {
		return nil, err
	}
	u := &Use{grants: g, grant: grant, end: end}
	g.uses[u] = struct{}{}
	g.schedule(g.left(grant))
	return u, nil
}

// Context is Begin with a context: under ends with ctx or with the grant, and
// its cause says which. If the grant is no longer valid, it has already ended.
// The caller must call stop.
func (g *Grants) Context(ctx context.Context, grant *jws.Grant) (under context.Context, stop func()) {
	under, _, stop = g.Renewable(ctx, grant)
	return under, stop
}

// Renewable is Context with the use, by which it can go on under a newer grant; nil
// if the grant is no longer valid.
func (g *Grants) Renewable(ctx context.Context, grant *jws.Grant) (under context.Context, u *Use, stop func()) {
	under, end := context.WithCancelCause(ctx)
	u, err := g.Begin(grant, end)
	if err != nil {
		end(err)
	}
	return under, u, func() {
		u.Stop()
		end(nil)
	}
}

// Renew moves the use to a newer grant, which was just verified. It fails as
// Begin does, without a change.
func (u *Use) Renew(grant *jws.Grant) error {
	g := u.grants
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.Check(grant); err != nil {
		return err
	}
	u.grant, u.ended = grant, false
	g.schedule(g.left(grant))
	return nil
}

// Stop ends the use. It may be called repeatedly, and on nil.
func (u *Use) Stop() {
	if u == nil {
		return
	}
	u.grants.mu.Lock()
	defer u.grants.mu.Unlock()
	delete(u.grants.uses, u)
}

// schedule sets the timer for the next possible expiry. The caller holds mu.
func (g *Grants) schedule(left time.Duration) {
	wait := min(max(left, 0), checkEvery)
	due := time.Now().Add(wait)
	if !g.due.IsZero() && !due.Before(g.due) {
		return
	}
	g.due = due
	if g.timer == nil {
		g.timer = time.AfterFunc(wait, g.look)
	} else {
		g.timer.Reset(wait)
	}
}

// look ends the uses of expired grants.
func (g *Grants) look() {
	for _, u := range g.over() {
		u.end(ErrExpired)
	}
}

// over returns the uses that have expired, each once, and sets the timer again.
func (g *Grants) over() (over []*Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due = time.Time{}
	now, next := g.o.Now(), checkEvery
	for u := range g.uses {
		left := g.leftAt(u.grant, now)
		switch {
		case left > 0:
			u.ended = false // the clock may have been set back
			next = min(next, left)
		case !u.ended:
			u.ended = true
			over = append(over, u)
		}
	}
	if len(g.uses) > 0 {
		g.schedule(next)
	}
	return over
}

// review ends the uses of revoked grants. It repeats the call for a use that is
// already ending: its end may still be running, and everything under the grant
// must be closed when the revocation returns.
func (g *Grants) review() {
	for _, u := range g.revoked() {
		u.end(ErrRevoked)
	}
}

func (g *Grants) revoked() (revoked []*Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for u := range g.uses {
		if g.Revoked(u.grant) {
			revoked = append(revoked, u)
		}
	}
	return revoked
}
