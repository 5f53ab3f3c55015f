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
	desk   *Desk
	entry  *admission
	spent  [sha256.Size]byte
	cookie string

	end func() // guarded by desk.mu: closes the socket; nil: none is open
}

// A spent cookie, and when it was used.
type spent struct {
	by *admission
	at time.Time
}

// rotate gives entry a new cookie. The caller holds mu.
func (d *Desk) rotate(entry *admission, now time.Time) *Pass {
	p := &Pass{desk: d, entry: entry, spent: entry.cookie, cookie: rand.Text()}
	delete(d.byTicket, entry.ticket)
	delete(d.byCookie, entry.cookie)
	entry.ticketEnds = time.Time{}
	d.bySpent[entry.cookie] = spent{entry, now}
	if entry.spent = append(entry.spent, entry.cookie); len(entry.spent) > maxSpent {
		delete(d.bySpent, entry.spent[0])
		entry.spent = append(entry.spent[:0:0], entry.spent[1:]...)
	}
	entry.cookie = sha256.Sum256([]byte(p.cookie))
	entry.holder = p
	d.byCookie[entry.cookie] = entry
	return p
}

// replayed handles a cookie that was already used. Long after its use that is
// no accident: one of two clients stole it, so neither may go on. It returns
// what ends the socket. The caller holds mu.
func (d *Desk) replayed(key [sha256.Size]byte, now time.Time) (end func()) {
	used, known := d.bySpent[key]
	if !known || now.Sub(used.at) < raceTime {
		return nil
	}
	entry := used.by
	d.drop(entry)
	d.stolen()
	if entry.holder == nil {
		return nil
	}
	return entry.holder.end
}

// Cookie returns the next cookie, and how long a browser should keep it.
func (p *Pass) Cookie() (value string, life time.Duration) {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	return p.cookie, p.entry.cookieEnds.Sub(p.desk.now())
}

// Opened sets what ends the socket that the cookie has opened.
func (p *Pass) Opened(end func()) {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	if p.desk.byCookie[p.entry.cookie] != p.entry { // stolen in the meantime
		defer end()
	}
	p.end = end
}

// Closed notes that the socket has ended.
func (p *Pass) Closed() {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	p.end = nil
}

// Renew gives the next admission the socket's newer grant.
func (p *Pass) Renew(grant *jws.Grant, token string) {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	if p.entry.holder == p {
		p.entry.Grant, p.entry.Token = grant, token
		p.entry.cookieEnds = earlier(p.desk.now().Add(protocol.CookieTTL), grant.Expires())
	}
}

// Restore makes the used cookie valid again, as it has opened nothing.
func (p *Pass) Restore() {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	entry := p.entry
	if entry.holder != p || p.desk.byCookie[entry.cookie] != entry {
		return
	}
	delete(p.desk.byCookie, entry.cookie)
	delete(p.desk.bySpent, p.spent)
	entry.spent = entry.spent[:len(entry.spent)-1]
	entry.cookie, entry.holder = p.spent, nil
	p.desk.byCookie[entry.cookie] = entry
}
