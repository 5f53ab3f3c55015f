package access

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxAdmissions bounds the unused admissions of a relay, and
	// maxAdmissionsPerUser those of one user; beyond them /pty-session
	// answers 429.
	maxAdmissions        = 20_000
	maxAdmissionsPerUser = 512
)

// An Admission lets its bearer open one socket to one terminal, once.
type Admission struct {
	Grant   *jws.Grant
	Token   string // the grant as it was presented
	Session protocol.SessionID
	PTY     protocol.PTYID
}

// Desk hands out admissions, each as a ticket and a cookie, and takes them
// back. Ticket and cookie are spent together: the use of one ends the other
// (DESIGN §7).
type Desk struct {
	now func() time.Time

	// Guarded by mu.
	mu       sync.Mutex
	byTicket map[[sha256.Size]byte]*admission
	byCookie map[[sha256.Size]byte]*admission
	perUser  map[protocol.UserID]int
}

type admission struct {
	Admission
	ticket, cookie [sha256.Size]byte // keys of the two maps; secrets themselves aren't kept
	ticketEnds     time.Time
	cookieEnds     time.Time
}

// NewDesk returns an empty Desk that reads the time from now.
func NewDesk(now func() time.Time) *Desk {
	return &Desk{
		now:      now,
		byTicket: map[[sha256.Size]byte]*admission{},
		byCookie: map[[sha256.Size]byte]*admission{},
		perUser:  map[protocol.UserID]int{},
	}
}

// Issue makes a ticket (valid [protocol.TicketTTL]) and a cookie (valid
// [protocol.CookieTTL]) for a, neither beyond the grant. A grant that is past
// its time is of kind expired, also within the clocks' skew: what it opened
// would close at once.
func (d *Desk) Issue(a Admission) (ticket, cookie string, ticketEnds time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	user := a.Grant.Subject
	if !now.Before(a.Grant.Expires()) {
		return "", "", time.Time{}, protocol.Errorf(protocol.KindExpired, "the grant has expired")
	}
	if len(d.byCookie) >= maxAdmissions || d.perUser[user] >= maxAdmissionsPerUser {
		d.sweep(now)
	}
	if len(d.byCookie) >= maxAdmissions || d.perUser[user] >= maxAdmissionsPerUser {
		return "", "", time.Time{}, protocol.Errorf(protocol.KindTooMany, "too many unused tickets")
	}
	ticket, cookie = rand.Text(), rand.Text()
	entry := &admission{
		Admission:  a,
		ticket:     sha256.Sum256([]byte(ticket)),
		cookie:     sha256.Sum256([]byte(cookie)),
		ticketEnds: earlier(now.Add(protocol.TicketTTL), a.Grant.Expires()),
		cookieEnds: earlier(now.Add(protocol.CookieTTL), a.Grant.Expires()),
	}
	d.byTicket[entry.ticket], d.byCookie[entry.cookie] = entry, entry
	d.perUser[user]++
	return ticket, cookie, entry.ticketEnds, nil
}

// Redeem spends the admission behind ticket, or, when none is presented,
// behind cookie. It must have been issued for this session and terminal. A
// presented ticket alone decides: a bad one isn't saved by a good cookie.
func (d *Desk) Redeem(ticket, cookie string, session protocol.SessionID, pty protocol.PTYID) (Admission, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var entry *admission
	var ends time.Time
	switch {
	case ticket != "":
		if entry = d.byTicket[sha256.Sum256([]byte(ticket))]; entry != nil {
			ends = entry.ticketEnds
		}
	case cookie != "":
		if entry = d.byCookie[sha256.Sum256([]byte(cookie))]; entry != nil {
			ends = entry.cookieEnds
		}
	}
	if entry == nil || !d.now().Before(ends) || entry.Session != session || entry.PTY != pty {
		return Admission{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	d.drop(entry)
	return entry.Admission, nil
}

func (d *Desk) drop(entry *admission) {
	delete(d.byTicket, entry.ticket)
	delete(d.byCookie, entry.cookie)
	user := entry.Grant.Subject
	if d.perUser[user]--; d.perUser[user] == 0 {
		delete(d.perUser, user)
	}
}

// sweep drops what can't be used any more: it runs only when a bound is
// reached, so memory is bounded without a timer.
func (d *Desk) sweep(now time.Time) {
	for _, entry := range d.byCookie {
		if !now.Before(entry.ticketEnds) && !now.Before(entry.cookieEnds) {
			d.drop(entry)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
