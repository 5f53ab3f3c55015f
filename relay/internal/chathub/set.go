package chathub

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// A Set holds the hubs and sockets of a relay.
type Set struct {
	// Static after construction.
	tunnels agentstream.Tunnels
	grants  *lifetime.Grants
	log     *slog.Logger
	metrics *Metrics
	life    agentstream.Life // of all hubs
	running sync.WaitGroup
	ids     atomic.Uint64
	window  atomic.Int64  // a ring's limit, in bytes; set under mu
	free    chan struct{} // closed once the set is closed and there is no socket

	// Guarded by mu.
	mu        sync.Mutex
	closed    bool
	sockets   map[*Socket]struct{}
	hubs      map[Key]*hub
	sandboxes map[protocol.SandboxID]int // hubs, those included that are ending
	people    map[protocol.UserID]*usage
	news      map[group]*newsroom
}

// A usage is what a person takes of a relay.
type usage struct {
	hubs    int // that the person has joined
	follows int // the same, once per socket
}

// NewSet returns an empty Set.
func NewSet(o Options) *Set {
	s := &Set{
		tunnels: o.Tunnels, grants: o.Grants, log: o.Log, metrics: o.Metrics, free: make(chan struct{}),
		sockets: map[*Socket]struct{}{}, hubs: map[Key]*hub{}, sandboxes: map[protocol.SandboxID]int{},
		people: map[protocol.UserID]*usage{}, news: map[group]*newsroom{},
	}
	if s.grants == nil {
		s.grants = lifetime.New(lifetime.Options{})
	}
	s.life = agentstream.NewLife(context.Background())
	s.window.Store(protocol.ChatRingBytes)
	return s
}

// Close ends all hubs and sockets. It waits for the hubs, and for the sockets
// until ctx ends.
func (s *Set) Close(ctx context.Context) { s.Drain(ctx, "") }

// Drain is Close, and tells sockets to go to another relay's public origin,
// unless empty.
func (s *Set) Drain(ctx context.Context, origin string) {
	s.mu.Lock()
	if !s.closed && len(s.sockets) == 0 {
		close(s.free)
	}
	s.closed = true
	all := make([]*Socket, 0, len(s.sockets))
	for socket := range s.sockets {
		all = append(all, socket)
	}
	s.mu.Unlock()
	for _, socket := range all {
		socket.sendAway(origin)
	}
	s.life.End()
	s.running.Wait()
	select {
	case <-s.free:
	case <-ctx.Done():
	}
}

// Socket returns a socket for a client, which gets the news of its session from
// now on. The caller must call its Serve. It fails if the grant is over or the
// relay goes away.
func (s *Set) Socket(conn Conn, g Guest) (*Socket, error) {
	socket := newSocket(s, conn, g, s.nextID())
	use, err := s.grants.Begin(g.Grant, socket.ended)
	if err != nil {
		return nil, err
	}
	socket.use = use
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		use.Stop()
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	}
	s.sockets[socket] = struct{}{}
	s.metrics.Sockets.Inc()
	s.subscribe(socket)
	return socket, nil
}

func (s *Set) nextID() turn.SocketID { return turn.SocketID(s.ids.Add(1)) }

// left forgets a socket that has left all conversations.
func (s *Set) left(socket *Socket) {
	socket.use.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, socket)
	s.metrics.Sockets.Dec()
	s.unsubscribe(socket)
	if s.closed && len(s.sockets) == 0 {
		close(s.free)
	}
}

// acquire lets a person join key's hub once more, and starts one if there is none.
// It fails if the set is closed, or there or the person has too many.
func (s *Set) acquire(key Key, grant *jws.Grant, token string) (*hub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	}
	user := s.people[grant.Subject]
	if user == nil {
		user = &usage{}
	}
	h := s.hubs[key]
	if h != nil && h.end.dead() {
		delete(s.hubs, key) // its end will be noted
		h = nil
	}
	switch {
	case user.follows >= maxPersonFollows, (h == nil || h.people[grant.Subject] == 0) && user.hubs >= maxPersonHubs:
		return nil, protocol.Errorf(protocol.KindTooMany, "too many conversations are open")
	case h == nil && !s.makeRoom(key.Sandbox):
		return nil, protocol.Errorf(protocol.KindTooMany, "too many conversations of this sandbox are open")
	case h == nil:
		h = s.start(key, grant, token)
	}
	if h.refs++; h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.people[grant.Subject]++; h.people[grant.Subject] == 1 {
		user.hubs++
	}
	user.follows++
	s.people[grant.Subject] = user
	return h, nil
}

// start starts a hub. The caller holds mu.
func (s *Set) start(key Key, grant *jws.Grant, token string) *hub {
	h := newHub(key, s, grant, token)
	s.hubs[key] = h
	s.sandboxes[key.Sandbox]++
	s.share()
	s.running.Go(func() {
		h.run()
		s.ended(h)
	})
	return h
}

// makeRoom reports whether a sandbox may have another hub. The one that nobody has
// joined for longest gives way. The caller holds mu.
func (s *Set) makeRoom(sandbox protocol.SandboxID) bool {
	if s.sandboxes[sandbox] < maxSandboxHubs {
		return true
	}
	var idle *hub
	for key, h := range s.hubs {
		if key.Sandbox == sandbox && h.idle != nil && (idle == nil || h.since.Before(idle.since)) {
			idle = h
		}
	}
	if idle == nil {
		return false
	}
	idle.idle.Stop()
	idle.running.End()
	delete(s.hubs, idle.key)
	return true
}

// ended forgets a hub that is over.
func (s *Set) ended(h *hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hubs[h.key] == h {
		delete(s.hubs, h.key)
	}
	if s.sandboxes[h.key.Sandbox]--; s.sandboxes[h.key.Sandbox] == 0 {
		delete(s.sandboxes, h.key.Sandbox)
	}
	if h.idle != nil {
		h.idle.Stop()
	}
	s.share()
}

// release takes back what acquire said. A hub that nobody has joined ends after
// idleTime.
func (s *Set) release(h *hub, person protocol.UserID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := s.people[person]
	if h.people[person]--; h.people[person] == 0 {
		delete(h.people, person)
		user.hubs--
	}
	if user.follows--; user.follows == 0 {
		delete(s.people, person)
	}
	if h.refs--; h.refs > 0 || h.end.dead() {
		return
	}
	h.since = time.Now()
	h.idle = time.AfterFunc(idleTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.refs == 0 {
			h.running.End()
			if s.hubs[h.key] == h {
				delete(s.hubs, h.key)
				s.share()
			}
		}
	})
}

// windowStep is the unit, in bytes, in which rings shrink and grow, and the least
// that each has: so that not every new hub changes all others.
const windowStep = 64 << 10

// share divides the memory for rings among the hubs. The caller holds mu.
func (s *Set) share() {
	window := int64(protocol.RelayChatRingBytes / max(len(s.hubs), 1))
	window = min(max(window-window%windowStep, windowStep), protocol.ChatRingBytes)
	if old := s.window.Swap(window); old <= window {
		return
	}
	for _, h := range s.hubs {
		h.ring.Shrink()
	}
}

// Held returns the memory of all rings, in bytes.
func (s *Set) Held() (held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hubs {
		held += h.ring.Held()
	}
	return held
}
