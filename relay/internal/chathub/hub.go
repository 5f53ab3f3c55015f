package chathub

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/chatring"
	"github.com/fairlead/fairlead/relay/internal/presence"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

// A hub shares one conversation.
type hub struct {
	// Static after construction.
	key       Key
	set       *Set
	first     protocol.GrantID // of who joined first
	log       *slog.Logger
	metrics   *Metrics
	events    chan func()   // for run; unbuffered, so that none is lost at the end
	greetings chan struct{} // 1 element: somebody is to be greeted
	dial      dialer
	end       ending
	ring      chatring.Ring
	running   agentstream.Life // of run

	// Guarded by Set.mu.
	people map[protocol.UserID]int // how often each person has joined
	refs   int
	idle   *time.Timer // runs while refs is 0
	since  time.Time   // when idle was started

	// Owned by run.
	members  map[turn.SocketID]*follower
	roster   *roster.Roster
	control  turn.State
	leasedAt time.Time // when the agent reported control's lease
	present  presence.People
	link     *link     // nil while the sandbox is away
	begun    bool      // there has been a link
	caughtUp bool      // the ring has had what the first OPENED announced
	over     bool      // run returns after this event
	lostAt   time.Time // since when there is no link; zero: there is one, or was none yet
}

// An ending says when a hub is over, and why.
type ending struct {
	done   chan struct{} // closed when run has returned
	err    error         // set before; nil: it was stopped
	doomed atomic.Bool   // it will be over; nobody else is to join
}

// errAgain says that a hub has ended for a reason that isn't the follower's: it is
// to join another one.
var errAgain = protocol.Fault(protocol.KindUnavailable, errors.New("chathub: the hub has ended"))

// dead reports whether the hub is over, or will be.
func (l *ending) dead() bool {
	select {
	case <-l.done:
		return true
	default:
		return l.doomed.Load()
	}
}

// reason returns why a hub that is over is.
func (l *ending) reason() error {
	<-l.done
	if l.err != nil {
		return l.err
	}
	return errAgain
}

// newHub returns a hub whose first stream is opened under grant.
func newHub(key Key, set *Set, grant *jws.Grant, token string) *hub {
	h := &hub{
		key: key, set: set, first: grant.ID, log: set.log, metrics: set.metrics,
		events: make(chan func()), greetings: make(chan struct{}, 1), end: ending{done: make(chan struct{})},
		people: map[protocol.UserID]int{}, members: map[turn.SocketID]*follower{},
	}
	h.ring.Init(&set.window, set.metrics.Gaps)
	h.running = agentstream.NewLife(set.life)
	first := &bearer{key.setOf(grant), asked(grant, token)}
	h.roster = roster.New(grantWait, first.key, first.grant)
	h.dial = dialer{key: key, tunnels: set.tunnels, log: set.log}
	h.dial.bearer.Store(first)
	return h
}

// post hands act to run. It waits while run is busy, and reports false if the hub
// is over: then act isn't called. Run itself must not post.
func (h *hub) post(act func()) bool {
	select {
	case h.events <- act:
		return true
	case <-h.end.done:
		return false
	}
}

// nudge makes run greet those who are to be greeted. It never blocks.
func (h *hub) nudge() {
	select {
	case h.greetings <- struct{}{}:
	default:
	}
}

// run owns the hub until its life ends or the conversation can't be reached.
func (h *hub) run() {
	defer h.running.End()
	h.metrics.Hubs.Inc()
	defer h.metrics.Hubs.Dec()
	defer h.finish()
	linkOver := make(chan struct{})
	go func() { // run waits for it
		defer close(linkOver)
		h.keepLinked(h.running)
	}()
	defer func() {
		h.running.End()
		for open := true; open; { // so that the link's goroutine can end
			select {
			case act := <-h.events:
				act()
			case <-linkOver:
				open = false
			}
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !h.over {
		select {
		case act := <-h.events:
			act()
		case <-h.greetings:
			h.greetNew()
		case <-timer.C:
			h.tick(time.Now())
		case <-h.running.Done():
			return
		}
		timer.Reset(h.untilTick(time.Now()))
	}
}

// finish ends the hub. Whoever still waits for it learns that it is over.
func (h *hub) finish() {
	close(h.end.done)
	for open := true; open; { // nobody posts any more
		select {
		case act := <-h.events:
			act()
		default:
			open = false
		}
	}
	for _, f := range h.ordered() {
		err := h.end.reason()
		if agentstream.AboutGrant(err) && !f.refused { // it joined too late to be the bearer
			err = errAgain
		}
		h.expel(f, err)
	}
}

// fail ends the hub, as the conversation is gone, or nobody may see it.
func (h *hub) fail(err error) {
	if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok {
		for _, f := range h.members {
			f.socket.sendAway(elsewhere.Origin)
		}
	}
	if protocol.KindOf(err) == protocol.KindNotFound {
		err = ErrNoSuch
	}
	h.end.err, h.over = err, true
	h.end.doomed.Store(true)
}

// linked starts using a link.
func (h *hub) linked(l *link) {
	h.link = l
	if !h.lostAt.IsZero() {
		h.metrics.Resume.Observe(time.Since(h.lostAt).Seconds())
		h.lostAt = time.Time{}
	}
	like := protocol.TerminalOpened{Lease: l.opened.Lease, Claimed: true}
	first := !h.begun
	h.begun, h.leasedAt = true, time.Now()
	var admits, others []roster.Effect
	for _, e := range h.roster.Opened(l.bearer.key, l.bearer.grant, l.opened.Lease.Holder, time.Now()) {
		if _, ok := e.(roster.Admit); ok {
			admits = append(admits, e)
		} else {
			others = append(others, e)
		}
	}
	if first {
		h.control = turn.New(like)
	}
	h.carry(others)
	if !first {
		h.step(turn.Reattached{Opened: like})
	}
	h.carry(admits)
	h.carry(h.roster.Pump())
}

// unlinked handles the end of the stream. Those who follow go on from the ring.
func (h *hub) unlinked(err error) {
	h.link = nil
	h.ring.Lost()
	h.carry(h.roster.Lost(false))
	h.step(turn.Detached{})
	h.metrics.StreamsLost.Inc()
	if len(h.members) > 0 {
		h.lostAt = time.Now()
	}
	h.log.Info("chat stream lost", "sandbox", h.key.Sandbox, "conversation", h.key.Conversation, "err", err)
}

// caught notes that the ring has had what OPENED announced, so that whoever
// follows now is acknowledged with the present state.
func (h *hub) caught() {
	h.caughtUp = true
	for _, f := range h.members {
		if f.admitted {
			f.settle(nil)
		}
	}
}

// answered handles the agent's messages other than events and states.
func (h *hub) answered(l *link, m protocol.Message) {
	if l != h.link {
		return
	}
	switch m := m.(type) {
	case protocol.Leased:
		h.step(turn.Leased{Leased: m})
	case protocol.Granted:
		h.carry(h.roster.Answer(roster.Handle(m.Handle), m.GrantID, m.Refused == "", time.Now()))
	}
}

// send queues m for the agent. Without a link it is dropped: what matters is
// repeated on the next one.
func (h *hub) send(m protocol.Message) {
	if h.link != nil {
		h.link.out.Send(m)
	}
}

// tick does what is due at now.
func (h *hub) tick(now time.Time) {
	if wait, needed := h.present.DueIn(now); needed && wait <= 0 {
		h.present.Told(now)
		frame := h.presenceFrame()
		for _, f := range h.members {
			if h.heeds(f) {
				f.socket.queue.tell(frame, maxNews)
			}
		}
	}
	h.carry(h.roster.Late(now))
}

// untilTick returns how long after now tick is due.
func (h *hub) untilTick(now time.Time) time.Duration {
	if len(h.members) == 0 {
		return time.Hour
	}
	wait := time.Hour
	if due, needed := h.present.DueIn(now); needed {
		wait = due
	}
	if due := h.roster.Due(); !due.IsZero() {
		wait = min(wait, due.Sub(now))
	}
	return max(wait, 0)
}

// keepLinked keeps a stream to the conversation until ctx ends or it is gone. It
// runs beside run.
func (h *hub) keepLinked(ctx context.Context) {
	var pause time.Duration // none at first, and after a link that lasted
	for first := true; ; first = false {
		l, err := h.open(ctx, first, pause)
		if err != nil {
			h.post(func() { h.fail(err) })
			return
		}
		behind := h.begin(l, first)
		adopted := make(chan struct{})
		h.post(func() {
			h.linked(l)
			if !behind {
				h.caught()
			}
			close(adopted)
		})
		select {
		case <-adopted:
		case <-ctx.Done():
			l.close()
			return
		}
		began := time.Now()
		err = h.serve(ctx, l, behind)
		if ctx.Err() != nil {
			return
		}
		if elsewhere := agentstream.Demoted(l.session); elsewhere != nil {
			h.post(func() { h.fail(elsewhere) })
			return
		}
		h.post(func() { h.unlinked(err) })
		if pause = agentstream.Longer(pause); time.Since(began) > agentstream.LongestPause {
			pause = 0
		}
	}
}

// stateFor returns what a user's socket is to know.
func (h *hub) stateFor(user protocol.UserID) State {
	v := h.ring.View()
	s := State{Connected: v.Connected, LastSeq: v.Head, Controller: v.Lease.Holder, Mine: v.Lease.Holder == user, Run: protocol.RunIdle}
	if v.State != nil {
		s.Provider, s.Unsupported, s.Pending = v.State.Provider, v.State.Unsupported, v.State.Pending
		s.Run, s.CommandID, s.Terminal = v.State.Run, v.State.CommandID, v.State.Terminal
		if v.State.UserID == user {
			s.ClientMessageID = v.State.ClientMessageID
		}
	}
	return s
}
