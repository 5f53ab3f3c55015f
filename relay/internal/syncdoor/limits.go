package syncdoor

import (
	"container/list"
	"crypto/sha256"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxAtOnce  = 2  // bodies of one client at one address
	maxInAll   = 64 // bodies
	perMinute  = 60 // of one client at one address
	burst      = 10 // of these at once
	maxClients = 4096
)

// A client is where pushes come from, at which address.
type client struct {
	from    netip.Prefix      // see [intake.Share]
	address [sha256.Size]byte // its hash: a made up one may be long
}

// An allowance is what a client may still do.
type allowance struct {
	client client
	under  int     // bodies that are under way
	tokens float64 // pushes that may begin at once, at the time at
	at     time.Time
}

// limits bound how much is pushed. Addresses are free to make up, so the oldest
// client without a body under way is forgotten when there are too many.
type limits struct {
	mu sync.Mutex
	// Guarded by mu.
	inAll   int
	clients map[client]*list.Element // of *allowance
	recent  *list.List               // least recently used first
}

func newLimits() *limits { return &limits{clients: map[client]*list.Element{}, recent: list.New()} }

// clientOf names the client that pushes from ip to address.
func clientOf(ip netip.Addr, address string) client {
	return client{intake.Share(ip), sha256.Sum256([]byte(address))}
}

// enter lets a push begin, until leave is called, or fails with KindTooMany.
func (l *limits) enter(ip netip.Addr, address string, now time.Time) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(clientOf(ip, address), now)
	a.tokens = min(burst, a.tokens+now.Sub(a.at).Seconds()*perMinute/60)
	a.at = now
	switch {
	case a.under >= maxAtOnce:
		return nil, tooMany(1, "%d pushes to this address are under way", maxAtOnce)
	case a.tokens < 1:
		wait := int(math.Ceil((1 - a.tokens) * 60 / perMinute))
		return nil, tooMany(wait, "%d pushes a minute to one address are enough", perMinute)
	case l.inAll >= maxInAll:
		return nil, tooMany(1, "%d pushes are under way here", maxInAll)
	}
	a.tokens--
	a.under++
	l.inAll++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.under--
		l.inAll--
	}), nil
}

// of returns a client's allowance. The caller holds mu.
func (l *limits) of(c client, now time.Time) *allowance {
	if e := l.clients[c]; e != nil {
		l.recent.MoveToBack(e)
		return e.Value.(*allowance)
	}
	for e := l.recent.Front(); e != nil && len(l.clients) >= maxClients; e = e.Next() {
		if old := e.Value.(*allowance); old.under == 0 {
			l.recent.Remove(e)
			delete(l.clients, old.client)
			break
		}
	}
	a := &allowance{client: c, tokens: burst, at: now}
	l.clients[c] = l.recent.PushBack(a)
	return a
}

func tooMany(seconds int, format string, args ...any) error {
	return &retryError{protocol.Errorf(protocol.KindTooMany, format, args...), max(seconds, 1)}
}

// A retryError says when to come again.
type retryError struct {
	fault   *protocol.Error
	seconds int
}

func (e *retryError) Error() string { return e.fault.Error() }
func (e *retryError) Unwrap() error { return e.fault }
