package access

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxSpent is how many used cookies of one page are remembered, so that reuse
	// is noticed.
	maxSpent = 16
	// raceTime is how long after its use a cookie may be presented again without
	// malice: by two windows that share cookies and reconnect at once, or by a
	// client that missed the answer with the next cookie.
	raceTime = 30 * time.Second
)

// A Pass is what remains of an admission after a cookie has opened a socket:
// the next cookie, for the page to reconnect with. It works once, under the
// same client id, until the first one would have expired. The used cookie is
// void at once.
type Pass struct {
	store  *TicketStore
	entry  *admission
	spent  [sha256.Size]byte
	cookie string

	end func() // guarded by store.mu: closes the socket; nil: none is open
}

// A spent cookie, and when it was used.
type spent struct {
	by *admission
	at time.Time
}

// rotate gives entry a new cookie. The caller holds mu.
func (s *TicketStore) rotate(entry *admission, now time.Time) *Pass {
	p := &Pass{store: s, entry: entry, spent: entry.cookie, cookie: rand.Text()}
	delete(s.byTicket, entry.ticket)
	delete(s.byCookie, entry.cookie)
	entry.ticketEnds = time.Time{}
	s.bySpent[entry.cookie] = spent{entry, now}
	if entry.spent = append(entry.spent, entry.cookie); len(entry.spent) > maxSpent {
		delete(s.bySpent, entry.spent[0])
		entry.spent = append(entry.spent[:0:0], entry.spent[1:]...)
	}
	entry.cookie = sha256.Sum256([]byte(p.cookie))
	entry.holder = p
	s.byCookie[entry.cookie] = entry
	return p
}

// replayed handles a cookie that was already used. Long after its use that is
// no accident: one of two clients stole it, so neither may go on. It returns
// what ends the socket. The caller holds mu.
func (s *TicketStore) replayed(key [sha256.Size]byte, now time.Time) (end func()) {
	used, known := s.bySpent[key]
	if !known || now.Sub(used.at) < raceTime {
		return nil
	}
	entry := used.by
	s.drop(entry)
	s.stolen()
	if entry.holder == nil {
		return nil
	}
	return entry.holder.end
}

// Cookie returns the next cookie, and how long a browser should keep it.
func (p *Pass) Cookie() (value string, life time.Duration) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.cookie, p.entry.cookieEnds.Sub(p.store.now())
}

// Opened sets what ends the socket that the cookie has opened.
func (p *Pass) Opened(end func()) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.store.byCookie[p.entry.cookie] != p.entry { // stolen in the meantime
		defer end()
	}
	p.end = end
}

// Closed notes that the socket has ended.
func (p *Pass) Closed() {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.end = nil
}

// Renew gives the next admission the socket's newer grant.
func (p *Pass) Renew(grant *jws.Grant, token string) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.entry.holder == p {
		p.entry.Grant, p.entry.Token = grant, token
		p.entry.cookieEnds = earlier(p.store.now().Add(protocol.CookieTTL), grant.Expires())
	}
}

// Restore makes the used cookie valid again, as it has opened nothing.
func (p *Pass) Restore() {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	entry := p.entry
	if entry.holder != p || p.store.byCookie[entry.cookie] != entry {
		return
	}
	delete(p.store.byCookie, entry.cookie)
	delete(p.store.bySpent, p.spent)
	entry.spent = entry.spent[:len(entry.spent)-1]
	entry.cookie, entry.holder = p.spent, nil
	p.store.byCookie[entry.cookie] = entry
}
