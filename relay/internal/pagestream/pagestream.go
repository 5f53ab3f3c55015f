// Package pagestream sends commands to their user's pages, and keeps unanswered
// ones for pages that connect later.
package pagestream

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxStreams bounds the open streams of a relay, and maxStreamsPerUser
	// those of one user; beyond them a stream is refused as too_many.
	maxStreams        = 4096
	maxStreamsPerUser = 16
	// maxWaitingBytes bounds the waiting commands of all users together.
	// [protocol.MaxCommandsInFlight] bounds those of one user.
	maxWaitingBytes = 64 << 20
)

// errSeveralBrowsers refuses a command that says to nobody which browser it is
// for, where each would run it.
var errSeveralBrowsers = protocol.Errorf(protocol.KindConflict, "several browsers of this user are connected: target.browserId must say which one")

// Pages holds the open streams of all users and what waits for them. It is safe
// for concurrent use.
type Pages struct {
	// Static after construction.
	grants *lifetime.Grants
	ended  *prometheus.CounterVec
	offers *prometheus.CounterVec // by what became of them
	now    func() time.Time

	// Guarded by mu.
	mu      sync.Mutex
	closed  bool
	boxes   map[protocol.UserID]*box
	streams int
	bytes   int // of all that waits
}

// A box holds one user's commands and streams. It exists while it has any.
type box struct {
	user    protocol.UserID
	epoch   string // of the counter, so that ids from an earlier box are invalid
	counter uint64 // of the newest command
	waiting []*command
	streams map[*stream]struct{}
}

// A command waits until it is withdrawn.
type command struct {
	number   uint64
	envelope []byte // JSON, without line breaks
	scope    Scope
	taken    bool // a stream got it; from then on scope.Browser is that stream's, even if empty
}

// A Scope says which of a user's streams get a command: those whose grant
// carries Needs for Session, before Ends.
type Scope struct {
	Needs   protocol.Capability
	Session protocol.SessionID // empty: the command is for none
	Ends    time.Time
	// Browser is the only one that gets the command. Empty: the first that takes
	// it, so that no other runs it as well.
	Browser string
}

// goesTo reports whether s gets c now.
func (c *command) goesTo(s *stream, now time.Time) bool {
	named := c.taken || c.scope.Browser != ""
	return c.scope.covers(s.grant, now) && (!named || c.scope.Browser == s.browser)
}

// covers reports whether a stream under grant may get a command with scope s.
func (s Scope) covers(grant *jws.Grant, now time.Time) bool {
	session := s.Session
	if session == "" {
		session = grant.Session
	}
	return now.Before(s.Ends) && grant.Allows(session, "", s.Needs)
}

// New returns Pages whose streams are under grants.
func New(grants *lifetime.Grants, reg prometheus.Registerer) *Pages {
	p := &Pages{
		grants: grants, now: time.Now, boxes: map[protocol.UserID]*box{},
		ended: instrument.Counters("fairlead_control_streams_ended_total", "Streams of commands to pages that ended, by reason.", "reason",
			endedLeft, endedSlow, endedExpired, endedRevoked, endedClosing),
	}
	p.offers = instrument.Counters("fairlead_page_commands_total", "Commands for pages that wait no more, or never did, by why.", "outcome",
		offerTaken, offerMissed, offerTooMany, offerSeveral)
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_control_streams",
		Help: "Open streams of commands to pages.",
	}, func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return float64(p.streams)
	})
	reg.MustRegister(p.ended, p.offers, open)
	return p
}

// Close ends all streams and refuses new ones.
func (p *Pages) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.boxes {
		for s := range b.streams {
			s.end(endedClosing)
		}
	}
}

// What became of an offered command: labels of a counter.
const (
	offerTaken   = "taken"    // a page has had it
	offerMissed  = "missed"   // no page came for it
	offerTooMany = "too_many" // too much waited for its user, or for all
	offerSeveral = "several"  // it names none of several browsers
)

// An Offered command waits for its pages.
type Offered struct {
	pages   *Pages
	box     *box
	command *command
}

// Withdraw ends the waiting. Again it does nothing.
func (o Offered) Withdraw() { o.end(func() bool { return true }) }

// Recall ends the waiting of a command that no page has had, and reports whether
// it is such a one.
func (o Offered) Recall() bool { return o.end(func() bool { return !o.command.taken }) }

func (o Offered) end(may func() bool) bool {
	p := o.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(o.box.waiting, o.command)
	if i < 0 || !may() {
		return false
	}
	o.box.waiting = slices.Delete(o.box.waiting, i, i+1)
	p.bytes -= len(o.command.envelope)
	p.tidy(o.box)
	outcome := offerMissed
	if o.command.taken {
		outcome = offerTaken
	}
	p.offers.WithLabelValues(outcome).Inc()
	return true
}

// Offer sends a command to the streams of user within scope, now and until it
// is withdrawn. It fails with kind too_many if too much waits, and with conflict
// if scope names no browser and the streams are those of several.
func (p *Pages) Offer(user protocol.UserID, scope Scope, env protocol.CommandEnvelope) (Offered, error) {
	envelope, err := json.Marshal(env)
	if err != nil {
		return Offered{}, protocol.Fault(protocol.KindInvalid, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.box(user)
	if len(b.waiting) >= protocol.MaxCommandsInFlight || p.bytes+len(envelope) > maxWaitingBytes {
		p.tidy(b)
		p.offers.WithLabelValues(offerTooMany).Inc()
		return Offered{}, protocol.Errorf(protocol.KindTooMany, "too many commands wait for this user's pages")
	}
	if scope.Browser == "" {
		switch browsers := b.browsers(scope, p.now()); len(browsers) {
		case 0:
		case 1:
			scope.Browser = browsers[0] // not the pages that name none: they may be in another
		default:
			p.offers.WithLabelValues(offerSeveral).Inc()
			return Offered{}, errSeveralBrowsers
		}
	}
	b.counter++
	c := &command{number: b.counter, envelope: envelope, scope: scope}
	b.waiting = append(b.waiting, c)
	p.bytes += len(envelope)
	for s := range b.streams {
		s.wake()
	}
	return Offered{p, b, c}, nil
}

// Browsers returns the browsers whose streams would get a command for user now,
// sorted. Streams that name none aren't among them.
func (p *Pages) Browsers(user protocol.UserID, scope Scope) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.boxes[user]
	if b == nil {
		return nil
	}
	return b.browsers(scope, p.now())
}

// browsers is [Pages.Browsers]. The caller holds mu.
func (b *box) browsers(scope Scope, now time.Time) []string {
	var all []string
	for s := range b.streams {
		if s.browser != "" && scope.covers(s.grant, now) {
			all = append(all, s.browser)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// box returns the box of user, a new one if there is none. The caller holds mu.
func (p *Pages) box(user protocol.UserID) *box {
	b := p.boxes[user]
	if b == nil {
		b = &box{user: user, epoch: strings.ToLower(rand.Text()), streams: map[*stream]struct{}{}}
		p.boxes[user] = b
	}
	return b
}

// tidy removes b if it is empty. The caller holds mu.
func (p *Pages) tidy(b *box) {
	if len(b.waiting) == 0 && len(b.streams) == 0 {
		delete(p.boxes, b.user)
	}
}

// open adds a stream for page. A grant revoked since its verification ends the
// stream at once.
func (p *Pages) open(page Page) (*stream, error) {
	grant := page.Grant
	s := &stream{grant: grant, browser: page.Browser, news: make(chan struct{}, 1), over: make(chan struct{})}
	use, err := p.grants.Begin(grant, s.ends)
	if errors.Is(err, lifetime.ErrExpired) {
		return nil, err
	} else if err != nil {
		s.ends(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		use.Stop()
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	}
	b := p.box(grant.Subject)
	if p.streams >= maxStreams || len(b.streams) >= maxStreamsPerUser {
		p.tidy(b)
		use.Stop()
		return nil, protocol.Errorf(protocol.KindTooMany, "too many streams are open")
	}
	s.use, s.box, s.reached = use, b, b.position(page.After)
	b.streams[s] = struct{}{}
	p.streams++
	return s, nil
}

// drop removes a stream that has ended.
func (p *Pages) drop(s *stream) {
	s.use.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(s.box.streams, s)
	p.streams--
	p.tidy(s.box)
}

// position returns the number in an event id of this box, 0 for any other.
func (b *box) position(id string) uint64 {
	epoch, digits, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || epoch != b.epoch || number > b.counter {
		return 0
	}
	return number
}

// take returns the commands that are new to s, as events.
func (p *Pages) take(s *stream) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var events []byte
	now := p.now()
	for _, c := range s.box.waiting {
		if c.number <= s.reached || !c.goesTo(s, now) {
			continue
		}
		c.taken, c.scope.Browser = true, s.browser
		events = fmt.Appendf(events, "id: %s-%d\nevent: command\ndata: %s\n\n", s.box.epoch, c.number, c.envelope)
	}
	s.reached = s.box.counter
	return events
}
