// Package hub shares one terminal among its viewers: it decides who sees it and
// who types, and has one stream to the agent for all of them.
//
// A viewer passes four steps. It joins: the hub knows of it. It is admitted:
// the agent has accepted its grant, or earlier another one of the same person.
// It is attached: it has a position in the output and gets its greeting. It
// leaves. Joining, admission and leaving are methods of the audience, attaching
// is one of [Hub].
//
// Owners. One goroutine, run, owns the hub: it takes one event after another,
// from gateways, from the reader of the stream and from viewers' writers. Beside
// it a dialer keeps the stream to the agent, whose reader hands output to the
// feed and offers it to every socket that takes it at once. Keys don't pass
// through run: the goroutine that reads a socket hands them to the input queue,
// which run tells who may type. Who is here and who may see is the audience's,
// which run calls and which tells the hub, as its floor, of those who see. Of a
// viewer, run owns who it is and what it may; its other parts have an owner and a
// lock each:
//
//	reader   where it is in the output       feed.Feed.mu    package feed
//	outbox   what it is to be told           outbox.mu       outbox.go
//	socket   who writes both                 socket.writing  socket.go, fanout.go
//	keys     what it types                   input.Queue.mu  package input
//
// Lock order: Set.mu, then feed.Feed.mu, then feed.Memory.mu. socket.writing before
// outbox.mu, and before feed.Feed.mu. input.Queue.mu before outbox.mu and link.mu.
// outbox.mu and link.mu are last: nothing is locked while one of them is held. No
// lock is held while a socket or the stream is written to, but socket.writing, and
// none while an event is posted, but that.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/presence"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

// maxReads bounds the concurrent reads of the log in a hub; further viewers wait.
const maxReads = 8

// A Key names one terminal.
type Key struct {
	Sandbox protocol.SandboxID
	Session protocol.SessionID
	PTY     protocol.PTYID
}

// Tunnels finds the tunnel of a sandbox.
type Tunnels = agentstream.Tunnels

// A Hub shares one terminal.
type Hub struct {
	// Static after construction.
	key      Key
	dial     dialer
	log      *slog.Logger
	metrics  *Metrics
	events   chan event
	typing   *input.Queue
	common   common                    // what it has with the relay's other hubs
	shared   atomic.Pointer[feed.Feed] // feed, for the set
	finished atomic.Bool               // the process is over and nothing new will come; set by feed
	ending   atomic.Bool               // the process was over when a stream was opened
	life     lifecycle
	crowd    crowd

	// Set by run before ready is closed.
	feed *feed.Feed

	// Owned by run.
	state    turn.State
	leasedAt time.Time // when the agent reported state's lease
	audience audience
	link     *link // nil while the sandbox is away
	presence presence.People
	facts    facts
	leading  leading
	resize   pendingResize
	wants    wants
	pacers   pacers
	ticked   time.Time // the last tick

	lostAt time.Time // since when viewers have no link; zero: they have one
}

// common is what a hub shares with others. A [Set] implements it for a relay.
type common interface {
	// window returns a ring's memory limit, in bytes.
	window() int
	// keyframes returns the memory for keyframes; nil: unlimited.
	keyframes() *feed.Memory
	// sender sends output to sockets.
	sender() *batchsend.Sender
}

// newHub returns a hub whose first stream is opened under the grant first.
func newHub(key Key, first *jws.Grant, token string, common common, tunnels agentstream.Tunnels, log *slog.Logger, metrics *Metrics) *Hub {
	h := &Hub{
		life: newLifecycle(),
		key:  key, log: log, metrics: metrics, common: common,
		events:  make(chan event, 64),
		facts:   facts{openTo: protocol.ShareNone},
		wants:   wants{of: map[*Viewer]want{}},
		pacers:  pacers{newest: map[string]*Viewer{}},
		leading: newLeading(),
		crowd:   newCrowd(),
	}
	h.typing = input.New(h.life.over, metrics.Typing)
	h.dial.key, h.dial.tunnels, h.dial.log, h.dial.finished = key, tunnels, log, &h.finished
	h.dial.reads = make(chan struct{}, maxReads)
	h.audience = newAudience(key, &bearer{key.setOf(first), asked(first, token)}, h)
	return h
}

// post hands e to run. It waits while run is busy and gives up when the hub
// ends.
func (h *Hub) post(e event) {
	select {
	case h.events <- e:
	case <-h.life.done:
	}
}

// run owns the hub until ctx ends or the terminal can't be reached.
func (h *Hub) run(ctx context.Context) {
	defer h.life.end()
	h.metrics.Hubs.Inc()
	defer h.metrics.Hubs.Dec()
	defer func() {
		if h.feed != nil {
			h.feed.Close()
		}
	}()
	defer func() { // nobody handles their leaving any more
		for v := range h.audience.everybody() {
			v.use.Stop()
		}
		h.metrics.Viewers.Sub(float64(len(h.audience.viewers)))
		h.metrics.PaceSetters.Sub(float64(len(h.pacers.newest)))
	}()
	linkCtx, stopLink := context.WithCancel(ctx)
	linkOver := make(chan struct{})
	go func() { // run waits for it
		defer close(linkOver)
		h.keepLinked(linkCtx)
	}()
	defer func() {
		stopLink()
		for open := true; open; { // drain, so that the link's goroutines can end
			select {
			case <-h.events:
			case <-linkOver:
				open = false
			}
		}
	}()

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case e := <-h.events:
			if !e.act(h) {
				return
			}
		case <-h.typing.Asks():
			h.heed()
		case <-h.crowd.changed:
			h.tellCrowd(time.Now())
		case <-h.audience.ended:
			h.audience.cutEnded()
		case <-timer.C:
			h.tick(time.Now())
		case <-ctx.Done():
			origin := ""
			if elsewhere, ok := errors.AsType[*tunnel.StandbyError](context.Cause(ctx)); ok {
				origin = elsewhere.Origin
			}
			h.audience.sendAway(origin)
			return
		}
		timer.Reset(h.untilTick(time.Now()))
	}
}

// An event is something that the hub's run handles. Gateways, the stream's
// reader and viewers' writers post events; run takes one at a time. The
// interface is sealed, and each event handles itself: one without a handler
// doesn't compile.
type event interface {
	// act handles the event. It returns false when the hub is over.
	act(h *Hub) (goOn bool)
}

// From gateways.
type (
	joined  struct{ v *Viewer }
	left    struct{ v *Viewer }
	renewed struct {
		v     *Viewer
		grant *jws.Grant
		token string
	}
	said struct {
		v *Viewer
		m protocol.ClientMessage
	}
	executed struct{} // an Enter is to follow; run sets its timer
)

func (e joined) act(h *Hub) bool  { h.audience.join(e.v); return true }
func (e left) act(h *Hub) bool    { h.audience.leave(e.v); return true }
func (e renewed) act(h *Hub) bool { h.audience.renew(e.v, e.grant, e.token); return true }
func (e said) act(h *Hub) bool    { h.obey(e.v, e.m); return true }
func (executed) act(*Hub) bool    { return true }

// From whoever writes to a viewer, or gets its acks.
type (
	resynced   struct{ v *Viewer } // it was sent a resync
	fellBehind struct {            // it can't continue where it is
		v   *Viewer
		why string
	}
	paced struct{ v *Viewer } // it is a pace-setter and has progressed
)

func (e resynced) act(h *Hub) bool   { e.v.outbox.Tell(h.stateFor(e.v)); return true }
func (e fellBehind) act(h *Hub) bool { h.fellBehind(e.v, e.why); return true }
func (e paced) act(h *Hub) bool      { h.tellPace(e.v); return true }

// From the goroutine that asked whether the agent's log still has what a new
// viewer wants.
type inLog struct {
	v  *Viewer
	ok bool
}

func (e inLog) act(h *Hub) bool { h.inLog(e.v, e.ok); return true }

// From the stream to the agent.
type (
	linkUp struct {
		l       *link
		adopted chan struct{} // closed once run uses l
	}
	inRing        struct{} // the ring holds what OPENED announced
	linkDown      struct{ err error }
	linkFailed    struct{ err error } // there will be no link
	bearerRefused struct {            // by the agent
		bearer *bearer
		err    error
		again  chan bool // gets whether there is another bearer
	}
	answered struct {
		l *link
		m protocol.Message
	}
	exited    struct{}
	keyframed struct{ kf *feed.Keyframe } // nil: it came and was dropped
)

func (e linkUp) act(h *Hub) bool {
	h.linked(e.l)
	close(e.adopted)
	return true
}

func (inRing) act(h *Hub) bool       { h.caughtUp(); return true }
func (e linkDown) act(h *Hub) bool   { h.unlinked(e.err); return true }
func (e linkFailed) act(h *Hub) bool { return h.unreachable(e.err) }

func (e bearerRefused) act(h *Hub) bool {
	e.again <- h.audience.replaceBearer(e.bearer, e.err)
	return true
}

func (e answered) act(h *Hub) bool {
	if e.l == h.link {
		h.answer(e.m)
	}
	return true
}

func (exited) act(h *Hub) bool {
	h.typing.End()
	h.noKeyframes()
	return true
}

func (e keyframed) act(h *Hub) bool {
	if e.kf == nil {
		h.noKeyframes()
	} else {
		h.came(e.kf)
	}
	return true
}

// step feeds one event to the turn-taking rules and executes their effects.
func (h *Hub) step(e turn.Event) {
	var effects []turn.Effect
	revision := h.state.Revision()
	h.state, effects = turn.Step(h.state, e)
	if _, again := e.(turn.Reattached); again || h.state.Revision() != revision {
		h.leasedAt = time.Now()
	}
	h.typing.Follow(h.state)
	for _, effect := range effects {
		switch effect := effect.(type) {
		case turn.Propose:
			h.typing.Resume() // input typed before the request is written first
			h.audience.carry(h.audience.roster.Hurry(effect.Proposal.Next.GrantID))
			h.send(effect.Proposal)
		case turn.ReportHolder:
			h.send(effect.Holder)
		case turn.Greet:
			h.attach(h.audience.viewers[effect.Socket])
		case turn.Broadcast:
			h.audience.tell(effect.Message)
		case turn.Send:
			if v := h.audience.viewers[effect.Socket]; v != nil {
				v.outbox.Tell(effect.Message)
			}
		case turn.SendState:
			if v := h.audience.viewers[effect.Socket]; v != nil {
				v.outbox.Tell(h.stateFor(v))
			}
		case turn.StateChanged:
			h.tellState()
		default:
			h.metrics.Unhandled.WithLabelValues(unhandledTurn).Inc()
		}
	}
	h.followController()
	h.lead()
	h.typing.Resume() // after all were told why
}

// tellState tells everybody who has control.
func (h *Hub) tellState() {
	for _, v := range h.audience.viewers {
		if v.greeted {
			v.outbox.Tell(h.stateFor(v))
		}
	}
}

// stateFor returns the present control_state for v. It reduces the remaining
// grace by the time since the agent reported it, but not to 0: the agent ends
// it.
func (h *Hub) stateFor(v *Viewer) protocol.ControlState {
	m := h.state.StateFor(v.id)
	m.LastTurn = h.facts.lastTurn
	if m.GraceMS > 0 {
		m.GraceMS = max(m.GraceMS-time.Since(h.leasedAt).Milliseconds(), 1)
	}
	return m
}

// send queues m for the agent. Without a link it is dropped: what matters is
// repeated on the next link.
func (h *Hub) send(m protocol.Message) {
	if h.link != nil {
		h.link.Send(m)
	}
}

// entered lets an admitted viewer take part. The turn-taking rules greet it at
// once or after its claim is answered.
func (h *Hub) entered(v *Viewer) {
	h.presence.Add(v.user, v.name, v.may(roster.Control))
	h.mayLead(v)
	h.step(turn.Joined{
		Socket: v.id, User: v.user, Name: v.name, GrantID: h.audience.roster.Front(v.set), CanControl: v.may(roster.Control),
		Owns: v.may(roster.Own),
	})
	early := v.early
	v.early = nil
	for _, m := range early {
		h.obey(v, m)
	}
}

// changed handles a viewer's new rights. could: it could have control.
func (h *Hub) changed(v *Viewer, could bool) {
	if v.wantsAll && !v.may(roster.Record) {
		v.wantsAll = false
		v.reader.SetExact(false)
		h.repace(v)
	}
	h.presence.Change(v.user, v.name, could, v.may(roster.Control))
	h.mayLead(v)
	h.step(turn.Renewed{Socket: v.id, GrantID: h.audience.front(v), CanControl: v.may(roster.Control), Owns: v.may(roster.Own)})
}

// exited removes a viewer.
func (h *Hub) exited(v *Viewer) {
	h.presence.Remove(v.user, v.may(roster.Control))
	h.mayLead(v)
	h.wants.drop(v)
	h.unpace(v)
	v.reader.Detach()
	v.keys.Leave()
	h.step(turn.Left{Socket: v.id})
}

// heed handles what keys ask for: control of a free terminal, and leading.
func (h *Hub) heed() {
	last, takers := h.typing.Asked()
	for _, t := range takers {
		h.leading.acts(t.User, t.ID)
		h.step(turn.Keyed{Socket: t.ID})
	}
	if last != nil {
		h.leading.acts(last.User, last.ID)
		h.lead()
	}
}

// obey handles a text frame of a viewer.
func (h *Hub) obey(v *Viewer, m protocol.ClientMessage) {
	if !h.audience.sees(v) {
		switch {
		case !h.audience.pending.has(v):
		case len(v.early) == maxEarly:
			h.audience.cut(v, cutNotices, protocol.KindTooMany, "too many messages before the first answer")
		default:
			v.early = append(v.early, m)
		}
		return
	}
	if yields(m) {
		v.keys.Heard()
	}
	if asksFor(m) {
		h.leading.acts(v.user, v.id) // a new controller leads with the window that asked for control
	}
	switch m.Type {
	case protocol.ClientRequestControl:
		h.step(turn.Requested{Socket: v.id})
	case protocol.ClientTakeControl:
		h.step(turn.Taken{Socket: v.id})
	case protocol.ClientTakeBack:
		h.step(turn.TakenBack{Socket: v.id})
	case protocol.ClientCancelRequest:
		h.step(turn.Cancelled{Socket: v.id})
	case protocol.ClientGrantControl:
		h.step(turn.Granted{Socket: v.id, To: m.To})
	case protocol.ClientRevokeControl:
		h.step(turn.Revoked{Socket: v.id})
	case protocol.ClientResize:
		h.leading.wants(v.user, v.id, size{m.Cols, m.Rows})
		h.lead()
		h.tick(time.Now())
	case protocol.ClientLead:
		h.leading.acts(v.user, v.id)
		h.lead()
	default:
		h.metrics.Unhandled.WithLabelValues(unhandledClient).Inc()
	}
}
