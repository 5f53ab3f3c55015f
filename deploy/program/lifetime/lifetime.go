// Package lifetime ends what is done under a grant when the grant ends: at its
// time, or as soon as it is revoked. A relay and an agent each have one [Grants]
// for all their streams and sockets.
package lifetime

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

// Why something under a grant ends.
var (
	ErrExpired = protocol.Errorf(protocol.KindExpired, "the grant has expired")
	ErrRevoked = protocol.Errorf(protocol.KindUnauthenticated, "access was revoked")
)

// Options configure [Grants].
type Options struct {
	Revoked *jws.RevocationSet // nil: nothing is revoked
	// Skew is how long past its time a grant still counts. Whoever verifies with a
	// skew allows for it, so that a grant that was just taken doesn't end at once.
	Skew time.Duration
	Now  func() time.Time // the clock of the wall; nil: time.Now
}

// Grants are the grants under which something is under way. It is safe for
// concurrent use.
type Grants struct {
	o Options // static after construction

	// Guarded by mu.
	mu    sync.Mutex
	uses  map[*Use]struct{}
	timer *time.Timer // runs look; nil before the first use
	due   time.Time   // when it will, by the monotonic clock; zero: it doesn't run
}

// A Use is something that is done under a grant.
type Use struct {
	// Static after construction.
	grants *Grants
	end    func(cause error)

	// Guarded by grants.mu.
	grant *jws.Grant
	ended bool // its time was over, and end was told
}

// New returns Grants without uses. It is called before o.Revoked is in use.
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

// Check returns [ErrExpired] or [ErrRevoked] for a grant that is no longer good.
func (g *Grants) Check(grant *jws.Grant) error {
	switch {
	case g.Over(grant):
		return ErrExpired
	case g.Revoked(grant):
		return ErrRevoked
	}
	return nil
}

// Over reports whether a grant's time is over.
func (g *Grants) Over(grant *jws.Grant) bool { return g.left(grant) <= 0 }

// Revoked reports whether a grant was revoked.
func (g *Grants) Revoked(grant *jws.Grant) bool {
	return g.o.Revoked != nil && g.o.Revoked.Grant(grant)
}

// left returns how long a grant is good by its time.
func (g *Grants) left(grant *jws.Grant) time.Duration { return g.leftAt(grant, g.o.Now()) }

func (g *Grants) leftAt(grant *jws.Grant, now time.Time) time.Duration {
	return grant.Expires().Add(g.o.Skew).Sub(now)
}

// Begin notes that something is done under a grant, which was just verified. end
// is called with [ErrExpired] or [ErrRevoked] when the grant ends; with ErrRevoked
// before the call that revoked it returns. It may be called more than once, and a
// last time while Stop is called. Begin fails with the same errors. Stop must be
// called.
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

// Context is Begin for what ends with a context: the returned one ends with ctx
// or with the grant, and its cause says which. It has ended where the grant is no
// longer good. stop must be called.
func (g *Grants) Context(ctx context.Context, grant *jws.Grant) (under context.Context, stop func()) {
	under, end := context.WithCancelCause(ctx)
	u, err := g.Begin(grant, end)
	if err != nil {
		end(err)
	}
	return under, func() {
		u.Stop()
		end(nil)
	}
}

// Renew puts what is done under a newer grant, which was just verified. It fails
// as Begin does, and changes nothing then.
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

// Stop notes that it is done. A nil Use may be stopped, and one may be stopped
// again.
func (u *Use) Stop() {
	if u == nil {
		return
	}
	u.grants.mu.Lock()
	defer u.grants.mu.Unlock()
	delete(u.grants.uses, u)
}

// schedule has the clock looked at when a grant's time may be over. The caller
// holds mu.
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

// look ends what is done under grants whose time is over.
func (g *Grants) look() {
	for _, u := range g.over() {
		u.end(ErrExpired)
	}
}

// over returns the uses whose time is over, each once, and schedules the next
// look.
func (g *Grants) over() (over []*Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due = time.Time{}
	now, next := g.o.Now(), checkEvery
	for u := range g.uses {
		left := g.leftAt(u.grant, now)
		switch {
		case left > 0:
			u.ended = false // the clock may have been put back
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

// review ends what is done under grants that were revoked. A use that was told
// before is told again: whoever told it may not be through yet, and when the
// revocation returns whatever the grant opened is closed.
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
