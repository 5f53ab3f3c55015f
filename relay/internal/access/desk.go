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

const (
	// maxAdmissions bounds the unused admissions of a relay, and
	// maxAdmissionsPerUser those of one user; beyond them /pty-session
	// answers 429.
	maxAdmissions        = 20_000
	maxAdmissionsPerUser = 512
)

// A TargetKind says what sort of thing a socket leads to. Each has a route, and
// a cookie, of its own.
type TargetKind string

// TargetTerminal is a terminal, named by session and PTY.
const TargetTerminal TargetKind = "terminal"

// A Target is what a socket leads to. Targets are compared whole: an admission
// to one opens no other.
type Target struct {
	Kind    TargetKind
	Session protocol.SessionID
	PTY     protocol.PTYID
}

// An Admission lets its bearer open one socket to one target, once.
type Admission struct {
	Grant *jws.Grant
	Token string // the grant as it was presented
	Target
}

// Desk hands out admissions, each as a ticket and a cookie, and takes them
// back. Ticket and cookie are spent together: the use of one ends the other
// (DESIGN §7). Who came with the cookie gets another one to come back with: see
// [Pass].
type Desk struct {
	now func() time.Time

	// Guarded by mu.
	mu       sync.Mutex
	byTicket map[[sha256.Size]byte]*admission
	byCookie map[[sha256.Size]byte]*admission
	bySpent  map[[sha256.Size]byte]spent // by cookies that were used before
	stolen   func()                      // is told of a cookie that two have used
	perUser  map[protocol.UserID]int
}

type admission struct {
	Admission
	ticket, cookie [sha256.Size]byte // keys of the two maps; secrets themselves aren't kept
	ticketEnds     time.Time
	cookieEnds     time.Time

	// What a page has that comes back with cookies.
	client string              // whose cookies they are, once one was used
	holder *Pass               // of the last socket; nil: none yet
	spent  [][sha256.Size]byte // oldest first, at most maxSpent
}

// Presented is what somebody opens a socket with.
type Presented struct {
	Ticket, Cookie string
	Client         string // the page's name of itself; empty: it has none
	Target         Target
}

// NewDesk returns an empty Desk that reads the time from now.
func NewDesk(now func() time.Time) *Desk {
	return &Desk{
		now:      now,
		byTicket: map[[sha256.Size]byte]*admission{},
		byCookie: map[[sha256.Size]byte]*admission{},
		bySpent:  map[[sha256.Size]byte]spent{},
		stolen:   func() {},
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
	if a.Grant.Over(now) {
		return "", "", time.Time{}, lifetime.ErrExpired
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

// OnStolen has fn told of every cookie that turns out to be in two hands. It is
// called before the first request.
func (d *Desk) OnStolen(fn func()) { d.stolen = fn }

// Redeem spends the admission behind the ticket, or, when none is presented,
// behind the cookie. It must have been issued for this target. A
// presented ticket alone decides: a bad one isn't saved by a good cookie. A
// cookie leaves a Pass, which whoever opens nothing with it restores; a ticket
// leaves none.
func (d *Desk) Redeem(with Presented) (Admission, *Pass, error) {
	a, pass, end, err := d.redeem(with)
	if end != nil {
		end()
	}
	return a, pass, err
}

func (d *Desk) redeem(with Presented) (a Admission, pass *Pass, end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	var entry *admission
	var ends time.Time
	cookie := sha256.Sum256([]byte(with.Cookie))
	switch {
	case with.Ticket != "":
		if entry = d.byTicket[sha256.Sum256([]byte(with.Ticket))]; entry != nil {
			ends = entry.ticketEnds
		}
	case with.Cookie != "":
		if entry = d.byCookie[cookie]; entry != nil {
			ends = entry.cookieEnds
		}
	}
	another := entry != nil && with.Ticket == "" && entry.holder != nil && entry.client != with.Client
	if entry == nil || !now.Before(ends) || entry.Target != with.Target || another {
		if with.Ticket == "" {
			end = d.replayed(cookie, now)
		}
		return Admission{}, nil, end, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	if with.Ticket != "" {
		d.drop(entry)
		return entry.Admission, nil, nil, nil
	}
	entry.client = with.Client
	return entry.Admission, d.rotate(entry, now), nil, nil
}

func (d *Desk) drop(entry *admission) {
	delete(d.byTicket, entry.ticket)
	delete(d.byCookie, entry.cookie)
	for _, spent := range entry.spent {
		delete(d.bySpent, spent)
	}
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
