package preview

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxPreviews bounds the previews of a relay and maxPerUser those of one user.
	// Beyond them the answer is 429, unless some have expired.
	maxPreviews = 4096
	maxPerUser  = 64
	// maxCookies bounds the browsers in which one preview is open; the oldest has
	// to open it again.
	maxCookies = 16
	// maxTickets bounds the unused valid tickets of one preview; the oldest goes.
	// Each renewal makes one that nobody uses, and a browser may take seconds to
	// use another.
	maxTickets = 64
)

// idBytes is the length of a preview's id: base32 of 130 random bits.
const idBytes = 26

// An upstream is what a preview shows, and to whom.
type upstream struct {
	sandbox protocol.SandboxID
	session protocol.SessionID
	port    int
	user    protocol.UserID
}

// A key is the hash under which a secret is kept.
type key [sha256.Size]byte

func keyOf(secret string) key { return sha256.Sum256([]byte(secret)) }

// A preview is one preview host.
type preview struct {
	upstream
	grant   *jws.Grant
	token   string // the grant as it was presented
	tickets []ticket
	cookies []key // oldest first
}

// A ticket opens a preview once.
type ticket struct {
	key   key
	ends  time.Time
	start string
}

// A registry holds previews by their ids.
type registry struct {
	now func() time.Time

	mu   *sync.Mutex
	byID map[string]*preview // guarded by mu
}

func newRegistry(now func() time.Time) registry {
	return registry{now: now, mu: new(sync.Mutex), byID: map[string]*preview{}}
}

// issue makes a preview, or renews the one with that id under grant, and
// returns a ticket to it. An id of no preview of this upstream fails with kind
// not_found.
func (b *registry) issue(id string, at upstream, grant *jws.Grant, token, start string) (string, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	p := b.byID[id]
	switch {
	case id == "":
		if err := b.room(at.user, now); err != nil {
			return "", "", err
		}
		id, p = strings.ToLower(rand.Text()), &preview{upstream: at}
		b.byID[id] = p
	case p == nil || p.upstream != at:
		return "", "", protocol.Errorf(protocol.KindNotFound, "there is no such preview of this port")
	}
	if p.grant == nil || !grant.Expires().Before(p.grant.Expires()) { // of two concurrent renewals the later grant wins
		p.grant, p.token = grant, token
	}
	secret := rand.Text()
	p.tickets = slices.DeleteFunc(p.tickets, func(t ticket) bool { return !now.Before(t.ends) })
	if len(p.tickets) == maxTickets {
		p.tickets = p.tickets[1:]
	}
	ends := now.Add(protocol.TicketTTL)
	if grant.Expires().Before(ends) {
		ends = grant.Expires()
	}
	p.tickets = append(p.tickets, ticket{keyOf(secret), ends, start})
	return id, secret, nil
}

// room makes room for another preview, or fails with kind too_many. The caller
// holds mu. It scans all previews, but only when one is opened.
func (b *registry) room(user protocol.UserID, now time.Time) error {
	ofUser := 0
	for id, p := range b.byID {
		over := p.grant.Over(now)
		if over && (len(b.byID) >= maxPreviews || p.user == user && now.Sub(p.grant.Expires()) > protocol.MaxGrantTTL) {
			delete(b.byID, id)
			continue
		}
		if p.user == user && !over {
			ofUser++
		}
	}
	if len(b.byID) >= maxPreviews || ofUser >= maxPerUser {
		return protocol.Errorf(protocol.KindTooMany, "too many previews are open")
	}
	return nil
}

// known reports whether there is a preview of that id.
func (b *registry) known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byID[id] != nil
}

// redeem spends a ticket and returns the value of the browser's cookie and the
// start path.
func (b *registry) redeem(id, secret string) (cookie, start string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byID[id]
	if p == nil {
		return "", "", false
	}
	want := keyOf(secret)
	for i, t := range p.tickets {
		if t.key != want {
			continue
		}
		p.tickets = append(p.tickets[:i:i], p.tickets[i+1:]...)
		if !b.now().Before(t.ends) {
			return "", "", false
		}
		cookie = rand.Text()
		if len(p.cookies) == maxCookies {
			p.cookies = p.cookies[1:]
		}
		p.cookies = append(p.cookies, keyOf(cookie))
		return cookie, t.start, true
	}
	return "", "", false
}

// enter returns what one of the cookies opens, and its present grant.
func (b *registry) enter(id string, cookies []string) (at upstream, grant *jws.Grant, token string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byID[id]
	if p == nil {
		return upstream{}, nil, "", false
	}
	for _, cookie := range cookies {
		for _, known := range p.cookies {
			if known == keyOf(cookie) {
				return p.upstream, p.grant, p.token, true
			}
		}
	}
	return upstream{}, nil, "", false
}
