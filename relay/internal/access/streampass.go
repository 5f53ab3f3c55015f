package access

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// StreamCookieName is the cookie that opens the stream of commands, for pages
// that use EventSource, which can't send Authorization.
const StreamCookieName = "fairlead_control"

const (
	// maxStreamPasses bounds the passes of a relay; beyond it Issue fails.
	maxStreamPasses = 20_000
	// maxStreamPassesPerUser bounds those of one user; beyond it the oldest goes,
	// as its page was probably closed long ago.
	maxStreamPassesPerUser = 32
)

// StreamPasses issues the values of the stream's cookie. A pass works
// repeatedly, since EventSource reconnects by itself, and ends with its grant.
type StreamPasses struct {
	now func() time.Time // static

	mu sync.Mutex
	// Guarded by mu.
	passes map[[sha256.Size]byte]*jws.Grant
	byUser map[protocol.UserID][][sha256.Size]byte // oldest first
}

// NewStreamPasses returns StreamPasses that read the time with now.
func NewStreamPasses(now func() time.Time) *StreamPasses {
	return &StreamPasses{
		now: now, passes: map[[sha256.Size]byte]*jws.Grant{}, byUser: map[protocol.UserID][][sha256.Size]byte{},
	}
}

// Issue makes a pass for grant. An expired grant fails with kind expired, even
// within the allowed clock skew.
func (p *StreamPasses) Issue(grant *jws.Grant) (cookie string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if grant.Over(now) {
		return "", lifetime.ErrExpired
	}
	user := grant.Subject
	if own := p.byUser[user]; len(own) >= maxStreamPassesPerUser {
		p.drop(user, own[0])
	}
	if len(p.passes) >= maxStreamPasses {
		p.sweep(now)
	}
	if len(p.passes) >= maxStreamPasses {
		return "", protocol.Errorf(protocol.KindTooMany, "too many control sessions")
	}
	cookie = rand.Text()
	key := sha256.Sum256([]byte(cookie)) // no secret is kept
	p.passes[key] = grant
	p.byUser[user] = append(p.byUser[user], key)
	return cookie, nil
}

// Grant returns the grant behind a cookie.
func (p *StreamPasses) Grant(cookie string) (*jws.Grant, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	grant := p.passes[sha256.Sum256([]byte(cookie))]
	if grant == nil {
		return nil, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	if grant.Over(p.now()) {
		return nil, protocol.Fault(protocol.KindExpired, nil)
	}
	return grant, nil
}

// drop ends a pass. The caller holds mu.
func (p *StreamPasses) drop(user protocol.UserID, key [sha256.Size]byte) {
	delete(p.passes, key)
	own := p.byUser[user]
	for i, k := range own {
		if k == key {
			own = append(own[:i:i], own[i+1:]...)
			break
		}
	}
	if p.byUser[user] = own; len(own) == 0 {
		delete(p.byUser, user)
	}
}

// sweep drops expired passes. It runs only when the bound is reached, which
// bounds memory without a timer. The caller holds mu.
func (p *StreamPasses) sweep(now time.Time) {
	for key, grant := range p.passes {
		if grant.Over(now) {
			p.drop(grant.Subject, key)
		}
	}
}
