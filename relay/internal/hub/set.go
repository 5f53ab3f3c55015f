package hub

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// idleTime is how long a hub without viewers keeps its stream.
	idleTime = 30 * time.Second
	// maxHubs bounds the hubs of one sandbox, and of one person: it is a sandbox's
	// limit of terminals.
	maxHubs = protocol.MaxPTYs
	// maxName bounds a viewer's name, in bytes.
	maxName = 128
)

// openTimeout bounds the wait for a terminal that nobody watches yet. It is a
// variable so that a test can raise it.
var openTimeout = 5 * time.Second

// A Set holds the hubs of a relay, one for each watched terminal.
type Set struct {
	// Static after construction.
	tunnels agentstream.Tunnels
	log     *slog.Logger
	metrics *Metrics
	ctx     context.Context // ends all hubs
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	sockets atomic.Uint64
	ring    atomic.Int64 // a ring's memory limit, in bytes; set under mu
	memory  *feed.Memory // for keyframes
	sends   *batchsend.Sender
	sharing atomic.Bool      // share will be called soon
	grants  *lifetime.Grants // of all viewers
	free    chan struct{}    // closed once the set is closed and held is 0

	// Guarded by mu.
	mu     sync.Mutex
	closed bool
	hubs   map[Key]*shared
	spent  map[*shared]struct{} // replaced by another hub of the same terminal
	held   int                  // unreleased handles
}

// A shared is a hub of a set with its users.
type shared struct {
	hub    *Hub
	stop   context.CancelFunc
	first  protocol.GrantID        // of the first viewer
	people map[protocol.UserID]int // how many handles each person holds; the last one's stays
	refs   int
	idle   *time.Timer // runs while refs is 0
	since  time.Time   // when the timer was started
}

// NewSet returns an empty Set.
func NewSet(tunnels agentstream.Tunnels, log *slog.Logger, metrics *Metrics) *Set {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Set{
		tunnels: tunnels, log: log, metrics: metrics, ctx: ctx, cancel: cancel,
		grants: lifetime.New(lifetime.Options{}),
		hubs:   map[Key]*shared{}, spent: map[*shared]struct{}{}, free: make(chan struct{}),
	}
	s.ring.Store(protocol.RingBytes)
	s.memory = feed.NewMemory(s.reshare)
	s.sends = batchsend.New(batchsend.Options{Log: log, Calls: metrics.Calls})
	return s
}

// SendDirectly has each viewer sent to by a call of its own, without io_uring. It is
// called before anything runs.
func (s *Set) SendDirectly() {
	s.sends = batchsend.New(batchsend.Options{Direct: true, Calls: s.metrics.Calls})
}

// reshare calls share soon: the caller may hold a feed's lock.
func (s *Set) reshare() {
	if s.sharing.CompareAndSwap(false, true) {
		go func() { // ends after the call
			s.sharing.Store(false)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.share()
		}()
	}
}

// Close ends all hubs and tells their viewers that the relay goes away. It
// waits for the hubs, and for the sockets until ctx ends.
func (s *Set) Close(ctx context.Context) { s.Drain(ctx, "") }

// Drain is Close, and tells viewers to go to another relay's public origin,
// unless empty.
func (s *Set) Drain(ctx context.Context, origin string) {
	s.mu.Lock()
	if !s.closed && s.held == 0 {
		close(s.free)
	}
	s.closed = true
	s.mu.Unlock()
	s.cancel(&tunnel.StandbyError{Origin: origin})
	s.running.Wait()
	s.sends.Close()
	select {
	case <-s.free:
	case <-ctx.Done():
	}
}

// A Handle keeps a hub alive; Release it when the socket has ended.
type Handle struct {
	set  *Set
	key  Key
	t    *shared
	user protocol.UserID
	once sync.Once
}

// Open returns a handle on the hub of a terminal, once the agent has opened the
// terminal for grant. It fails with the agent's answer, with a
// [tunnel.StandbyError] if the terminal is at another relay, or unavailable if
// the sandbox isn't connected.
func (s *Set) Open(ctx context.Context, key Key, grant *jws.Grant, token string) (*Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		t, err := s.acquire(key, grant, token)
		if err != nil {
			return nil, err
		}
		handle := &Handle{set: s, key: key, t: t, user: grant.Subject}
		err = t.hub.life.await(ctx)
		if err == nil {
			return handle, nil
		}
		handle.Release()
		if t.first == grant.ID || !agentstream.AboutGrant(err) {
			return nil, err
		} // otherwise another viewer's grant was refused
	}
}

// acquire adds a user to key's hub and starts one if there is none. It fails if
// the set is closed or there are too many hubs.
func (s *Set) acquire(key Key, grant *jws.Grant, token string) (*shared, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	}
	t := s.hubs[key]
	// The stream of an ended terminal gives no more answers, not even about who
	// else may see it.
	if t != nil && t.hub.finished.Load() {
		s.spent[t] = struct{}{}
		t = nil
	}
	if t == nil || t.hub.life.dead() {
		if err := s.makeRoom(key.Sandbox, grant.Subject); err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(s.ctx)
		t = &shared{hub: newHub(key, grant, token, s, s.tunnels, s.log, s.metrics), stop: stop, first: grant.ID, people: map[protocol.UserID]int{}}
		t.hub.audience.grants = s.grants
		s.hubs[key] = t
		s.share()
		t.hub.crowd.is(1) // or the agent might hear first that nobody is there
		s.running.Go(func() {
			defer stop()
			t.hub.run(ctx)
			s.forget(key, t)
		})
	}
	s.held++
	if t.refs++; t.idle != nil {
		t.idle.Stop()
		t.idle = nil
		clear(t.people)
	}
	t.people[grant.Subject]++
	t.hub.crowd.is(t.refs)
	return t, nil
}

// makeRoom fails if a sandbox or a person has as many hubs as allowed, unless
// one of them is idle: then the longest idle one ends. Only an agent can say
// that a terminal exists. The caller holds mu.
func (s *Set) makeRoom(sandbox protocol.SandboxID, user protocol.UserID) error {
	for _, mine := range []func(Key, *shared) bool{
		func(key Key, _ *shared) bool { return key.Sandbox == sandbox },
		func(_ Key, t *shared) bool { return t.people[user] > 0 },
	} {
		n := 0
		var idle *shared
		var at Key
		count := func(key Key, t *shared) {
			if !mine(key, t) {
				return
			}
			if n++; t.idle != nil && (idle == nil || t.since.Before(idle.since)) {
				idle, at = t, key
			}
		}
		for key, t := range s.hubs {
			count(key, t)
		}
		for t := range s.spent {
			count(t.hub.key, t)
		}
		switch {
		case n < maxHubs:
		case idle == nil:
			return protocol.Errorf(protocol.KindTooMany, "too many terminals are open")
		default:
			idle.idle.Stop()
			idle.stop()
			if s.hubs[at] == idle {
				delete(s.hubs, at)
			}
			delete(s.spent, idle)
		}
	}
	return nil
}

// forget removes a hub that is over.
func (s *Set) forget(key Key, t *shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.spent, t)
	if s.hubs[key] == t {
		delete(s.hubs, key)
	}
	s.share()
}

// windowStep is the unit, in bytes, in which rings shrink and grow, and the
// least that each has: so that not every new hub changes all others.
const windowStep = 64 << 10

// window returns each ring's memory limit.
func (s *Set) window() int { return int(s.ring.Load()) }

// keyframes returns the memory for keyframes.
func (s *Set) keyframes() *feed.Memory { return s.memory }

// sender implements common.
func (s *Set) sender() *batchsend.Sender { return s.sends }

// share divides the memory that keyframes leave among the hubs. The caller
// holds mu.
func (s *Set) share() {
	window := s.memory.Left() / max(len(s.hubs)+len(s.spent), 1)
	window = min(max(window-window%windowStep, windowStep), protocol.RingBytes)
	if s.ring.Swap(int64(window)) == int64(window) {
		return
	}
	for _, t := range s.hubs {
		if f := t.hub.shared.Load(); f != nil {
			f.SetWindow(window)
		}
	}
}

// Held returns the memory of all rings and keyframes, in bytes.
func (s *Set) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := protocol.RelayRingBytes - s.memory.Left()
	add := func(t *shared) {
		if f := t.hub.shared.Load(); f != nil {
			held += f.Held()
		}
	}
	for _, t := range s.hubs {
		add(t)
	}
	for t := range s.spent {
		add(t)
	}
	return held
}

// Ended reports whether the terminal's program is known to have ended.
func (h *Handle) Ended() bool {
	return h.t.hub.finished.Load() || h.t.hub.ending.Load()
}

// Retire has whoever opens the terminal from now on get another hub: there is
// another terminal under its id.
func (h *Handle) Retire() {
	s := h.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hubs[h.key] == h.t {
		s.spent[h.t] = struct{}{}
		delete(s.hubs, h.key)
	}
}

// Release releases the handle. A hub without handles ends after idleTime, or at
// once if its terminal has ended.
func (h *Handle) Release() {
	h.once.Do(func() {
		s, t := h.set, h.t
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held--; s.held == 0 && s.closed {
			close(s.free)
		}
		t.refs--
		t.hub.crowd.is(t.refs)
		if t.refs > 0 {
			if t.people[h.user]--; t.people[h.user] == 0 {
				delete(t.people, h.user)
			}
			return
		}
		t.since = time.Now()
		wait := idleTime
		if t.hub.finished.Load() {
			wait = 0
		}
		t.idle = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if t.refs == 0 {
				t.stop()
				if s.hubs[h.key] == t {
					delete(s.hubs, h.key)
					s.share()
				}
			}
		})
	})
}

// A Guest is what the gateway knows of a joining socket.
type Guest struct {
	Grant  *jws.Grant
	Token  string // the grant in compact form, for the agent
	Socket Sink

	Since  *protocol.Position // where output should begin; nil: the default for a new viewer
	Astray bool               // it named an unreadable position
	Follow bool               // it never gives the terminal its size
	Exact  bool               // it gets every byte, if the grant carries record
	Client string             // client id across sockets; may be empty
	Counts bool               // it speaks terminal.v2
	Asked  time.Time          // when its request came; zero: now
}

// Join joins a socket. The gateway then runs the Viewer's Serve, passes it what
// it reads, and calls Leave at the end.
func (h *Handle) Join(g Guest) *Viewer {
	v := newViewer(h.t.hub, turn.SocketID(h.set.sockets.Add(1)), g)
	v.hub.post(joined{v})
	return v
}

// Leave removes the viewer.
func (v *Viewer) Leave() { v.hub.post(left{v}) }

// clip bounds a name, so that a long one takes no room from other messages.
func clip(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
