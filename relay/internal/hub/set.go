package hub

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// idleTime is how long a hub without viewers keeps its stream.
	idleTime = 30 * time.Second
	// openTimeout bounds the wait for a terminal that nobody watches yet.
	openTimeout = 5 * time.Second
)

// A Set holds the hubs of a relay, one for each terminal that is watched.
type Set struct {
	// Static after construction.
	tunnels Tunnels
	log     *slog.Logger
	metrics *Metrics
	ctx     context.Context // ends all hubs
	cancel  context.CancelFunc
	running sync.WaitGroup
	sockets atomic.Uint64

	// Guarded by mu.
	mu      sync.Mutex
	hubs    map[Key]*tenancy
	watched map[*tunnel.Session]int
}

// A tenancy is a hub and who uses it.
type tenancy struct {
	hub  *Hub
	stop context.CancelFunc
	refs int
	idle *time.Timer // runs while refs is 0
}

// NewSet returns an empty Set.
func NewSet(tunnels Tunnels, log *slog.Logger, metrics *Metrics) *Set {
	ctx, cancel := context.WithCancel(context.Background())
	return &Set{
		tunnels: tunnels, log: log, metrics: metrics, ctx: ctx, cancel: cancel,
		hubs: map[Key]*tenancy{}, watched: map[*tunnel.Session]int{},
	}
}

// Close ends all hubs: their viewers are told that the relay goes away.
func (s *Set) Close() {
	s.cancel()
	s.running.Wait()
}

// A Lease on a hub; Release it when the socket is over.
type Handle struct {
	set  *Set
	key  Key
	t    *tenancy
	once sync.Once
}

// Open returns a handle on the hub of a terminal, once the agent has opened
// the terminal for grant. It fails with the agent's answer, or unavailable
// when the sandbox isn't connected.
func (s *Set) Open(ctx context.Context, key Key, grant string) (*Handle, error) {
	handle := &Handle{set: s, key: key, t: s.enter(key, grant)}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	select {
	case <-handle.t.hub.ready:
	case <-handle.t.hub.done:
	case <-ctx.Done():
		handle.Release()
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
	}
	hub := handle.t.hub
	select {
	case <-hub.ready:
		if hub.err == nil {
			return handle, nil
		}
	default:
	}
	handle.Release()
	if hub.err != nil {
		return nil, hub.err
	}
	return nil, protocol.Fault(protocol.KindRestarting, nil)
}

// enter counts a user of key's hub, which it starts when there is none.
func (s *Set) enter(key Key, grant string) *tenancy {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.hubs[key]
	if t == nil {
		ctx, stop := context.WithCancel(s.ctx)
		t = &tenancy{hub: newHub(key, s.tunnels, s.log, s.metrics), stop: stop}
		t.hub.watch = s.watch
		s.hubs[key] = t
		s.running.Go(func() {
			defer stop()
			t.hub.run(ctx, grant)
			s.forget(key, t)
		})
	}
	t.refs++
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	return t
}

// forget drops a hub that is over.
func (s *Set) forget(key Key, t *tenancy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hubs[key] == t {
		delete(s.hubs, key)
	}
}

// Release gives the handle back. A hub that nobody holds ends after idleTime,
// or at once when it has nothing to show any more.
func (h *Handle) Release() {
	h.once.Do(func() {
		s, t := h.set, h.t
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.refs--; t.refs > 0 {
			return
		}
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
				}
			}
		})
	})
}

// watch counts the hubs that use session, so that its pings are frequent while
// somebody watches.
func (s *Set) watch(session *tunnel.Session, delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[session] += delta
	session.SetWatched(s.watched[session] > 0)
	if s.watched[session] == 0 {
		delete(s.watched, session)
	}
}

// A Guest is what a gateway knows of a socket that joins.
type Guest struct {
	Grant  *jws.Grant
	Token  string // the grant in compact form, for the agent
	Since  *protocol.Position
	Socket Sink
}

// Join attaches a socket. The gateway then runs the Viewer's Serve, hands it
// what it reads, and calls Leave at the end.
func (h *Handle) Join(g Guest) *Viewer {
	v := &Viewer{
		id:     turn.SocketID(h.set.sockets.Add(1)),
		name:   g.Grant.Name,
		user:   g.Grant.Subject,
		client: rand.Text(),
		sink:   g.Socket,
		since:  g.Since,
		hub:    h.t.hub,
		wake:   make(chan struct{}, 1),
		credit: semaphore.NewWeighted(protocol.MaxInputUnacked),
		grant:  g.Grant,
		token:  g.Token,
	}
	v.hub.post(joined{v})
	return v
}

// Leave detaches the viewer.
func (v *Viewer) Leave() { v.hub.post(left{v}) }

// Over is closed when the viewer's hub has ended.
func (v *Viewer) Over() <-chan struct{} { return v.hub.done }
