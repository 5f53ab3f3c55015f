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

// A TargetKind says what a socket leads to. Each kind has its own route and
// cookie.
type TargetKind string

const (
	TargetTerminal TargetKind = "terminal" // named by session and PTY
	TargetChat     TargetKind = "chat"     // the conversations of a session
)

// A Target is what a socket leads to. Targets are compared as a whole: an
// admission to one opens no other.
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

// TicketStore issues admissions, each as a ticket and a cookie, and redeems them.
// Using either spends both (DESIGN §7). A client that used
// the cookie gets a new one to reconnect with: see [Pass].
type TicketStore struct {
	// Static after construction, stolen after OnStolen.
	now    func() time.Time
	stolen func() // called when two clients have used a cookie

	mu sync.Mutex
	// Guarded by mu.
	byTicket map[[sha256.Size]byte]*admission
	byCookie map[[sha256.Size]byte]*admission
	bySpent  map[[sha256.Size]byte]spent // by cookies used before
	perUser  map[protocol.UserID]int
}

type admission struct {
	Admission
	ticket, cookie [sha256.Size]byte // keys of the two maps: hashes, so that no secret is kept
	ticketEnds     time.Time
	cookieEnds     time.Time

	// For clients that reconnect with cookies.
	client string              // whose cookies they are, after the first use
	holder *Pass               // of the last socket; nil: none yet
	spent  [][sha256.Size]byte // oldest first, at most maxSpent
}

// Presented is what a client opens a socket with.
type Presented struct {
	Ticket, Cookie string
	Client         string // the page's id for itself; empty: none
	Target         Target
}

// NewTicketStore returns an empty TicketStore that reads the time with now.
func NewTicketStore(now func() time.Time) *TicketStore {
	return &TicketStore{
		now:      now,
		byTicket: map[[sha256.Size]byte]*admission{},
		byCookie: map[[sha256.Size]byte]*admission{},
		bySpent:  map[[sha256.Size]byte]spent{},
		stolen:   func() {},
		perUser:  map[protocol.UserID]int{},
	}
}

// Issue makes a ticket (valid [protocol.TicketTTL]) and a cookie (valid
// [protocol.CookieTTL]) for a, neither beyond the grant. An expired grant fails
// with kind expired, even within the allowed clock skew: the socket would close
// at once.
func (s *TicketStore) Issue(a Admission) (ticket, cookie string, ticketEnds time.Time, err error) {
	return s.issue(a, protocol.CookieTTL)
}

// IssueTicket is Issue for a target whose socket no cookie of this store opens.
func (s *TicketStore) IssueTicket(a Admission) (ticket string, ends time.Time, err error) {
	ticket, _, ends, err = s.issue(a, protocol.TicketTTL) // nobody learns the cookie
	return ticket, ends, err
}

func (s *TicketStore) issue(a Admission, cookieLife time.Duration) (ticket, cookie string, ticketEnds time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	user := a.Grant.Subject
	if a.Grant.Over(now) {
		return "", "", time.Time{}, lifetime.ErrExpired
	}
	if len(s.byCookie) >= maxAdmissions || s.perUser[user] >= maxAdmissionsPerUser {
		s.sweep(now)
	}
	if len(s.byCookie) >= maxAdmissions || s.perUser[user] >= maxAdmissionsPerUser {
		return "", "", time.Time{}, protocol.Errorf(protocol.KindTooMany, "too many unused tickets")
	}
	ticket, cookie = rand.Text(), rand.Text()
	entry := &admission{
		Admission:  a,
		ticket:     sha256.Sum256([]byte(ticket)),
		cookie:     sha256.Sum256([]byte(cookie)),
		ticketEnds: earlier(now.Add(protocol.TicketTTL), a.Grant.Expires()),
		cookieEnds: earlier(now.Add(cookieLife), a.Grant.Expires()),
	}
	s.byTicket[entry.ticket], s.byCookie[entry.cookie] = entry, entry
	s.perUser[user]++
	return ticket, cookie, entry.ticketEnds, nil
}

// OnStolen sets fn to be called for every cookie that two clients turn out to
// have. It must be called before the first request.
func (s *TicketStore) OnStolen(fn func()) { s.stolen = fn }

// Redeem spends the admission behind the ticket or, if none is presented,
// behind the cookie. It must have been issued for this target. A presented
// ticket alone decides: a good cookie doesn't make up for a bad ticket. A
// cookie yields a Pass, which the caller restores if it opens no socket; a
// ticket yields none.
func (s *TicketStore) Redeem(with Presented) (Admission, *Pass, error) {
	a, pass, end, err := s.redeem(with)
	if end != nil {
		end()
	}
	return a, pass, err
}

func (s *TicketStore) redeem(with Presented) (a Admission, pass *Pass, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var entry *admission
	var ends time.Time
	cookie := sha256.Sum256([]byte(with.Cookie))
	switch {
	case with.Ticket != "":
		if entry = s.byTicket[sha256.Sum256([]byte(with.Ticket))]; entry != nil {
			ends = entry.ticketEnds
		}
	case with.Cookie != "":
		if entry = s.byCookie[cookie]; entry != nil {
			ends = entry.cookieEnds
		}
	}
	another := entry != nil && with.Ticket == "" && entry.holder != nil && entry.client != with.Client
	if entry == nil || !now.Before(ends) || entry.Target != with.Target || another {
		if with.Ticket == "" {
			end = s.replayed(cookie, now)
		}
		return Admission{}, nil, end, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	if with.Ticket != "" {
		s.drop(entry)
		return entry.Admission, nil, nil, nil
	}
	entry.client = with.Client
	return entry.Admission, s.rotate(entry, now), nil, nil
}

// RedeemTicket spends the admission behind a ticket for any target of a kind.
func (s *TicketStore) RedeemTicket(ticket string, kind TargetKind) (Admission, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.byTicket[sha256.Sum256([]byte(ticket))]
	if entry == nil || !s.now().Before(entry.ticketEnds) || entry.Kind != kind {
		return Admission{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	s.drop(entry)
	return entry.Admission, nil
}

// drop forgets an admission. The caller holds mu.
func (s *TicketStore) drop(entry *admission) {
	delete(s.byTicket, entry.ticket)
	delete(s.byCookie, entry.cookie)
	for _, spent := range entry.spent {
		delete(s.bySpent, spent)
	}
	user := entry.Grant.Subject
	if s.perUser[user]--; s.perUser[user] == 0 {
		delete(s.perUser, user)
	}
}

// sweep drops expired admissions. It runs only when a bound is reached, which
// bounds memory without a timer. The caller holds mu.
func (s *TicketStore) sweep(now time.Time) {
	for _, entry := range s.byCookie {
		if !now.Before(entry.ticketEnds) && !now.Before(entry.cookieEnds) {
			s.drop(entry)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
