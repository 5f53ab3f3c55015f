// Package hub shares one terminal among its viewers: one goroutine owns who
// watches and who types, a ring holds the output once for all of them, and
// every viewer is a cursor with a writer of its own.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

// A Key names one terminal.
type Key struct {
	Sandbox protocol.SandboxID
	Session protocol.SessionID
	PTY     protocol.PTYID
}

// Tunnels finds the tunnel of a sandbox. Package fleet implements it.
type Tunnels interface {
	// Wait returns the sandbox's tunnel, waiting for it until ctx ends.
	Wait(ctx context.Context, id protocol.SandboxID) (*tunnel.Session, error)
}

// A Hub shares one terminal.
type Hub struct {
	// Static after construction.
	key      Key
	tunnels  Tunnels
	log      *slog.Logger
	metrics  *Metrics
	events   chan event
	intake   *intake
	watch    func(session *tunnel.Session, delta int)
	window   func() int             // what the ring may take, in bytes
	revoked  *jws.RevocationSet     // nil: no grant is
	revised  chan struct{}          // revoked has changed
	reads    chan struct{}          // a place for each part of the log that is read at a time
	shared   atomic.Pointer[feed]   // feed, for the set
	bearer   atomic.Pointer[bearer] // whose grant opens the next link; set by run
	finished atomic.Bool            // the process is over: nothing new will come; set by feed
	ready    chan struct{}          // closed when viewers may join, or err is set
	done     chan struct{}          // closed when run has returned
	over     context.Context        // ends with done
	finish   context.CancelFunc

	// Set by run before ready is closed.
	feed *feed
	err  error

	// Owned by run.
	state    turn.State
	leasedAt time.Time // when the agent said how state's lease stands
	viewers  map[turn.SocketID]*Viewer
	grants   map[protocol.GrantID]int // users of each grant the agent knows: viewers, and bearer
	link     *link                    // nil while the sandbox is away
	open     bool                     // ready is closed
	presence presence
	resize   pendingResize
	wants    wants
	pacers   pacers
	ticked   time.Time // the last tick

	lastTurn   *protocol.AgentStoppedMessage // that a coding agent finished; nil: none
	recording  string                        // id of the one that runs
	openTo     protocol.Share                // whose programs may read and type here
	held       bool                          // output waits, by the agent's word
	catchingUp bool                          // the ring doesn't hold what OPENED announced
	lostAt     time.Time                     // when viewers began to be without a link; zero: they aren't
}

// A bearer is the grant under which the hub opens its stream. It stays on the
// stream when its viewer leaves, until another viewer's takes its place: the
// agent ends a stream without grants.
type bearer struct {
	id      protocol.GrantID // empty before anybody joined
	token   string
	expires time.Time
}

func newHub(key Key, tunnels Tunnels, log *slog.Logger, metrics *Metrics) *Hub {
	over, finish := context.WithCancel(context.Background())
	return &Hub{
		over: over, finish: finish,
		key: key, tunnels: tunnels, log: log, metrics: metrics,
		events:  make(chan event, 64),
		intake:  newIntake(over, metrics),
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
		viewers: map[turn.SocketID]*Viewer{},
		grants:  map[protocol.GrantID]int{},
		window:  func() int { return protocol.RingBytes },
		reads:   make(chan struct{}, maxReads),
		revised: make(chan struct{}, 1),
		openTo:  protocol.ShareNone,
		wants:   wants{of: map[*Viewer]want{}},
		pacers:  pacers{newest: map[string]*Viewer{}},
	}
}

// post hands e to run. It waits while run is busy and gives up when the hub is
// over.
func (h *Hub) post(e event) {
	select {
	case h.events <- e:
	case <-h.done:
	}
}

// run owns the hub until ctx ends or the terminal can't be reached. grant opens
// the first stream.
func (h *Hub) run(ctx context.Context, grant string) {
	defer close(h.done)
	defer h.finish()
	h.metrics.Hubs.Inc()
	defer h.metrics.Hubs.Dec()
	defer func() { // their leaving is not seen any more
		h.metrics.Viewers.Sub(float64(len(h.viewers)))
		h.metrics.PaceSetters.Sub(float64(len(h.pacers.newest)))
	}()
	h.bearer.Store(&bearer{token: grant})
	linkCtx, stopLink := context.WithCancel(ctx)
	linkOver := make(chan struct{})
	go func() { // run waits for it below
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
			if !h.handle(e) {
				return
			}
		case <-h.revised:
			h.cutRevoked()
		case <-timer.C:
			h.tick(time.Now())
		case <-ctx.Done():
			origin := ""
			if elsewhere, ok := errors.AsType[*tunnel.StandbyError](context.Cause(ctx)); ok {
				origin = elsewhere.Origin
			}
			h.sendAway(origin)
			return
		}
		timer.Reset(h.untilTick(time.Now()))
	}
}

// handle acts on one event. It returns false when the hub is over.
func (h *Hub) handle(e event) bool {
	switch e := e.(type) {
	case joined:
		h.join(e.v)
	case left:
		h.leave(e.v)
	case renewed:
		h.renew(e.v, e.grant, e.token)
	case said:
		h.obey(e.v, e.m)
	case resynced:
		e.v.tell(h.stateFor(e.v))
	case wentMissing:
		h.missed(e.v, e.why)
	case paced:
		h.tellPace(e.v)
	case keyframed:
		h.came(e.kf)
	case linkUp:
		h.linked(e.l)
		close(e.adopted)
	case inLog:
		h.answeredLog(e.v, e.ok)
	case inRing:
		h.caughtUp()
	case linkDown:
		h.unlinked(e.err)
	case bearerRefused:
		e.again <- h.replaceBearer(e.token, e.err)
	case linkFailed:
		return h.unreachable(e.err)
	case answered:
		if e.l == h.link {
			h.answer(e.m)
		}
	case exited:
		h.intake.end()
		h.noKeyframes()
	}
	return true
}

// step feeds one event to the turn-taking rules and carries out what follows.
func (h *Hub) step(e turn.Event) {
	var effects []turn.Effect
	revision := h.state.Revision()
	h.state, effects = turn.Step(h.state, e)
	if _, again := e.(turn.Reattached); again || h.state.Revision() != revision {
		h.leasedAt = time.Now()
	}
	h.intake.follow(h.state)
	for _, effect := range effects {
		switch effect := effect.(type) {
		case turn.Propose:
			h.intake.resume() // what was typed before this wish is written before it
			h.send(effect.Proposal)
		case turn.ReportHolder:
			h.send(effect.Holder)
		case turn.Greet:
			h.greet(h.viewers[effect.Socket])
		case turn.Broadcast:
			h.broadcast(effect.Message)
		case turn.Send:
			if v := h.viewers[effect.Socket]; v != nil {
				v.tell(effect.Message)
			}
		case turn.SendState:
			if v := h.viewers[effect.Socket]; v != nil {
				v.tell(h.stateFor(v))
			}
		case turn.StateChanged:
			for _, v := range h.viewers {
				if v.greeted {
					v.tell(h.stateFor(v))
				}
			}
		}
	}
	h.followController()
	h.intake.resume() // after all were told why
}

// stateFor returns the control_state for v as it is now: of a grace the agent
// said what was left then. One that must be over lasts until the agent says so.
func (h *Hub) stateFor(v *Viewer) protocol.ControlState {
	m := h.state.StateFor(v.id)
	m.LastTurn = h.lastTurn
	if m.GraceMS > 0 {
		m.GraceMS = max(m.GraceMS-time.Since(h.leasedAt).Milliseconds(), 1)
	}
	return m
}

// send queues m for the agent. Without a link it is dropped: what matters is
// said again when the link is back.
func (h *Hub) send(m protocol.Message) {
	if h.link != nil {
		h.link.send(m)
	}
}

func (h *Hub) broadcast(m protocol.ServerMessage) {
	for _, v := range h.viewers {
		if v.greeted {
			v.tell(m)
		}
	}
}

func (h *Hub) closeAll(kind protocol.Kind, cause string) {
	for _, v := range h.viewers {
		v.close(kind, cause)
	}
}

// cut ends a viewer that may not stay. It is out of the hub at once, however
// long its socket takes.
func (h *Hub) cut(v *Viewer, why string, kind protocol.Kind, cause string) {
	h.metrics.ViewersCut.WithLabelValues(why).Inc()
	v.close(kind, cause)
	h.leave(v)
}

// join adds a viewer. What it sees first is up to the turn-taking rules, which
// greet it at once or after its claim is answered.
func (h *Hub) join(v *Viewer) {
	if h.void(v.grant) { // since its ticket was made
		h.intake.leave(v)
		h.cut(v, cutRevoked, protocol.KindUnauthenticated, revokedCause)
		return
	}
	h.viewers[v.id] = v
	h.metrics.Viewers.Inc()
	h.presence.enter(v, h.mayControl(v.grant))
	h.addGrant(v)
	h.step(turn.Joined{
		Socket: v.id, User: v.user, Name: v.name, GrantID: v.grant.ID, CanControl: h.mayControl(v.grant),
	})
}

// greet lets v see the terminal, as soon as it can be placed.
func (h *Hub) greet(v *Viewer) {
	if _, waits := h.wants.of[v]; v == nil || v.greeted || waits {
		return
	}
	h.seat(v)
}

// welcome sends a viewer, which the feed has placed as m says, its first
// messages and lets output flow.
func (h *Hub) welcome(v *Viewer, m protocol.Attached) {
	h.metrics.Attached.WithLabelValues(m.Mode).Inc()
	h.metrics.Join.WithLabelValues(m.Mode).Observe(time.Since(v.asked).Seconds())
	if m.KeyframeBytes > 0 {
		h.metrics.KeyframesSent.Inc()
	}
	v.greeted, v.presence = true, h.presence.version
	greeting := []protocol.ServerMessage{h.stateFor(v), m}
	if h.link == nil && !h.finished.Load() {
		greeting = append(greeting, protocol.Waiting{Reason: protocol.WaitingSandbox})
	}
	greeting = append(greeting, h.presence.message())
	if h.recording != "" {
		greeting = append(greeting, protocol.RecordingState{ID: h.recording})
	}
	if h.openTo != protocol.ShareNone {
		greeting = append(greeting, protocol.SharedMessage{With: h.openTo})
	}
	if h.held && h.typed(v) {
		greeting = append(greeting, protocol.OutputHeld{Held: true})
	}
	h.intake.admit(v) // first, so that who was greeted may type
	v.start(greeting)
	h.repace(v)
}

func (h *Hub) leave(v *Viewer) {
	if h.viewers[v.id] != v {
		return
	}
	delete(h.viewers, v.id)
	h.metrics.Viewers.Dec()
	h.presence.leave(v, h.mayControl(v.grant))
	h.wants.drop(v)
	h.unpace(v)
	h.feed.leave(v)
	h.intake.leave(v)
	h.step(turn.Left{Socket: v.id})
	h.dropGrant(v.grant.ID)
	h.chooseBearer()
}

// renew puts a viewer under another grant of the same user.
func (h *Hub) renew(v *Viewer, grant *jws.Grant, token string) {
	if h.viewers[v.id] != v {
		return
	}
	if h.void(grant) { // since the gateway has verified it
		h.cut(v, cutRevoked, protocol.KindUnauthenticated, revokedCause)
		return
	}
	old := v.grant
	v.grant, v.token = grant, token
	if v.wantsAll && !h.mayRecord(grant) {
		v.wantsAll = false
		h.feed.setExact(v, false)
		h.repace(v)
	}
	h.addGrant(v)
	h.step(turn.Renewed{Socket: v.id, GrantID: grant.ID, CanControl: h.mayControl(grant)})
	h.dropGrant(old.ID)
	h.chooseBearer()
	if h.mayControl(old) != h.mayControl(grant) {
		h.presence.leave(v, h.mayControl(old))
		h.presence.enter(v, h.mayControl(grant))
	}
	v.tell(protocol.Reauthed{ExpiresAt: grant.Expires().Unix()})
}

func (h *Hub) mayControl(g *jws.Grant) bool {
	return g.Allows(h.key.Session, h.key.PTY, protocol.CapControl)
}

func (h *Hub) mayRecord(g *jws.Grant) bool {
	return g.Allows(h.key.Session, h.key.PTY, protocol.CapRecord)
}

// addGrant makes v's grant known to the agent, once for all its users.
func (h *Hub) addGrant(v *Viewer) {
	if h.grants[v.grant.ID]++; h.grants[v.grant.ID] == 1 {
		h.send(protocol.GrantAdd{Grant: v.token})
	}
	h.chooseBearer()
}

func (h *Hub) dropGrant(id protocol.GrantID) {
	if h.grants[id]--; h.grants[id] <= 0 {
		delete(h.grants, id)
		h.send(protocol.GrantDrop{GrantID: id})
	}
}

// chooseBearer makes the viewers' grant that lives longest the bearer. Without
// viewers it stays as it is.
func (h *Hub) chooseBearer() {
	old := h.bearer.Load()
	var best *Viewer
	for _, v := range h.viewers {
		if best == nil || v.grant.ExpiresAt > best.grant.ExpiresAt {
			best = v
		}
	}
	if best == nil || best.grant.ID == old.id {
		return
	}
	if h.grants[old.id] > 1 && !best.grant.Expires().After(old.expires) {
		return // a viewer still has the old one, which is as good
	}
	h.grants[best.grant.ID]++
	h.bearer.Store(&bearer{best.grant.ID, best.token, best.grant.Expires()})
	if old.id != "" {
		h.dropGrant(old.id)
	}
}

// replaceBearer: the agent doesn't accept the bearer's token any more. It cuts
// the viewers who came with it, and reports whether there is another to try.
func (h *Hub) replaceBearer(token string, err error) bool {
	e := protocol.AsError(err)
	for _, v := range h.viewers {
		if v.token == token {
			h.cut(v, cutRefused, e.Kind, e.Kind.Text())
		}
	}
	return h.bearer.Load().token != token
}

// obey acts on a text frame of a viewer.
func (h *Hub) obey(v *Viewer, m protocol.ClientMessage) {
	if h.viewers[v.id] != v {
		return
	}
	if yields(m) {
		h.intake.heard(v)
	}
	switch m.Type {
	case protocol.ClientRequestControl:
		h.step(turn.Requested{Socket: v.id})
	case protocol.ClientTakeControl:
		h.step(turn.Taken{Socket: v.id})
	case protocol.ClientCancelRequest:
		h.step(turn.Cancelled{Socket: v.id})
	case protocol.ClientGrantControl:
		h.step(turn.Granted{Socket: v.id, To: m.To})
	case protocol.ClientRevokeControl:
		h.step(turn.Revoked{Socket: v.id})
	case protocol.ClientResize:
		if _, ok := h.state.MayType(v.id, h.state.Term()); ok {
			h.resize.want(protocol.Resize{Term: h.state.Term(), Cols: m.Cols, Rows: m.Rows})
			h.tick(time.Now())
		}
	}
}
