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
	// maxStreamCookies bounds the cookies of a relay; beyond it Issue fails.
	maxStreamCookies = 20_000
	// maxStreamCookiesPerUser bounds those of one user; beyond it the oldest goes,
	// as its page was probably closed long ago.
	maxStreamCookiesPerUser = 32
)

// StreamCookies issues the cookies of the stream. A cookie works
// repeatedly, since EventSource reconnects by itself, and ends with its grant.
type StreamCookies struct {
	now func() time.Time // static

	mu sync.Mutex
	// Guarded by mu.
	grants map[[sha256.Size]byte]*jws.Grant
	byUser map[protocol.UserID][][sha256.Size]byte // oldest first
}

// NewStreamCookies returns StreamCookies that read the time with now.
func NewStreamCookies(now func() time.Time) *StreamCookies {
	return &StreamCookies{
		now: now, grants: map[[sha256.Size]byte]*jws.Grant{}, byUser: map[protocol.UserID][][sha256.Size]byte{},
	}
}

// Issue makes a cookie for grant. An expired grant fails with kind expired, even
// within the allowed clock skew.
func (p *StreamCookies) Issue(grant *jws.Grant) (cookie string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if grant.Over(now) {
		return "", lifetime.ErrExpired
	}
	user := grant.Subject
	if own := p.byUser[user]; len(own) >= maxStreamCookiesPerUser {
		p.drop(user, own[0])
	}
	if len(p.grants) >= maxStreamCookies {
		p.sweep(now)
	}
	if len(p.grants) >= maxStreamCookies {
		return "", protocol.Errorf(protocol.KindTooMany, "too many control sessions")
	}
	cookie = rand.Text()
	key := sha256.Sum256([]byte(cookie)) // no secret is kept
	p.grants[key] = grant
	p.byUser[user] = append(p.byUser[user], key)
	return cookie, nil
}

// Grant returns the grant behind a cookie.
func (p *StreamCookies) Grant(cookie string) (*jws.Grant, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	grant := p.grants[sha256.Sum256([]byte(cookie))]
	if grant == nil {
		return nil, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	if grant.Over(p.now()) {
		return nil, protocol.Fault(protocol.KindExpired, nil)
	}
	return grant, nil
}

// drop forgets a cookie. The caller holds mu.
func (p *StreamCookies) drop(user protocol.UserID, key [sha256.Size]byte) {
	delete(p.grants, key)
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

// sweep drops expired cookies. It runs only when the bound is reached, which
// bounds memory without a timer. The caller holds mu.
func (p *StreamCookies) sweep(now time.Time) {
	for key, grant := range p.grants {
		if grant.Over(now) {
			p.drop(grant.Subject, key)
		}
	}
}
