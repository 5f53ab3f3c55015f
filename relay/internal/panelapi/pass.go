package panelapi

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxPasses bounds the unused passes of a relay, maxPassesPerPerson those of one
	// person, whose oldest one gives way.
	maxPasses          = 10_000
	maxPassesPerPerson = 32
	// secretBytes is how much of a cookie and a token is random.
	secretBytes = 32
)

// A pass opens one socket to one terminal, once: by a cookie, which scripts can't
// read, or by a token, which is good for as long as a ticket. The use of either
// spends both.
type pass struct {
	grant  *jws.Grant
	bearer string // the grant in compact form
	origin string // of the extension that asked for it; empty: a program without one
	pty    protocol.PTYID
	again  bool // the terminal is there already
}

// A hash is what is kept of a secret.
type hash [sha256.Size]byte

func hashOf(secret string) hash { return sha256.Sum256([]byte(secret)) }

// An issued is a pass that nobody has used yet.
type issued struct {
	pass
	cookie, token         hash
	cookieEnds, tokenEnds time.Time
}

// passes are a relay's unused passes. The zero value is ready.
type passes struct {
	mu sync.Mutex
	// Guarded by mu.
	byCookie map[hash]*issued
	byToken  map[hash]*issued
	byPerson map[protocol.UserID][]*issued // oldest first
}

// secrets are what a pass is given out as.
type secrets struct {
	cookie, token         string
	cookieEnds, tokenEnds time.Time
}

// issue gives out p. gaveWay: an older one of the same person is void. It fails
// when its grant is over, or when the relay has too many.
func (s *passes) issue(p pass) (out secrets, gaveWay bool, err error) {
	now := time.Now()
	if p.grant.Over(now) {
		return out, false, lifetime.ErrExpired
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byCookie == nil {
		s.byCookie, s.byToken, s.byPerson = map[hash]*issued{}, map[hash]*issued{}, map[protocol.UserID][]*issued{}
	}
	own := s.byPerson[p.grant.Subject]
	if len(own) >= maxPassesPerPerson {
		gaveWay = now.Before(own[0].cookieEnds)
		s.drop(own[0])
	}
	if len(s.byCookie) >= maxPasses {
		s.sweep(now)
	}
	if len(s.byCookie) >= maxPasses {
		return out, gaveWay, protocol.Errorf(protocol.KindUnavailable, "failed to grant terminal session")
	}
	out = secrets{
		cookie: newSecret(), token: newSecret(),
		cookieEnds: earlier(now.Add(protocol.CookieTTL), p.grant.Expires()),
		tokenEnds:  earlier(now.Add(protocol.TicketTTL), p.grant.Expires()),
	}
	one := &issued{p, hashOf(out.cookie), hashOf(out.token), out.cookieEnds, out.tokenEnds}
	s.byCookie[one.cookie], s.byToken[one.token] = one, one
	s.byPerson[p.grant.Subject] = append(s.byPerson[p.grant.Subject], one)
	return out, gaveWay, nil
}

// A presented is what a page opens a socket with. A token, if only an empty one,
// alone decides.
type presented struct {
	token  string
	tokens bool
	cookie string
	origin string
}

// redeem spends the pass that a page presents. It fails with kind unauthenticated,
// and then spends nothing.
func (s *passes) redeem(with presented) (pass, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.find(with)
	if one == nil || one.origin != "" && one.origin != with.origin {
		return pass{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	s.drop(one)
	return one.pass, nil
}

// look returns the pass behind a cookie without spending it. An extension that may
// reach a host by its manifest sends no Origin with GET: then the cookie, which comes
// from no other site, is enough to look.
func (s *passes) look(cookie, origin string) (pass, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.find(presented{cookie: cookie})
	if one == nil || one.origin != "" && origin != "" && one.origin != origin {
		return pass{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	return one.pass, nil
}

// find returns what is presented, if it is still good. The caller holds mu.
func (s *passes) find(with presented) *issued {
	now := time.Now()
	if with.tokens {
		if one := s.byToken[hashOf(with.token)]; one != nil && now.Before(one.tokenEnds) {
			return one
		}
		return nil
	}
	if one := s.byCookie[hashOf(with.cookie)]; one != nil && now.Before(one.cookieEnds) {
		return one
	}
	return nil
}

// drop forgets a pass. The caller holds mu.
func (s *passes) drop(one *issued) {
	delete(s.byCookie, one.cookie)
	delete(s.byToken, one.token)
	user := one.grant.Subject
	own := slices.DeleteFunc(s.byPerson[user], func(other *issued) bool { return other == one })
	if s.byPerson[user] = own; len(own) == 0 {
		delete(s.byPerson, user)
	}
}

// sweep drops what nobody can use any more. It runs only at the bound, which needs
// no timer. The caller holds mu.
func (s *passes) sweep(now time.Time) {
	for _, one := range s.byCookie {
		if !now.Before(one.cookieEnds) {
			s.drop(one)
		}
	}
}

func newSecret() string {
	secret := make([]byte, secretBytes)
	rand.Read(secret)
	return base64.RawURLEncoding.EncodeToString(secret)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
