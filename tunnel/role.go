package tunnel

import (
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// A StandbyError says that the sandbox's primary tunnel is at another relay,
// which serves its terminals.
type StandbyError struct {
	Origin string // the other relay's public origin, never empty
}

func (e *StandbyError) Error() string { return "the sandbox's primary tunnel is at another relay" }

// Unwrap makes it look like a draining relay to callers that can't redirect.
func (e *StandbyError) Unwrap() error {
	return protocol.Errorf(protocol.KindRestarting, "the terminal has moved to another relay")
}

// A role is the agent's last ROLE on a tunnel.
type role struct {
	trust func(origin string) bool // static after construction; nil: no origin

	// Guarded by mu.
	mu      sync.Mutex
	last    protocol.Role
	said    bool
	changed chan struct{} // closed and replaced with each ROLE
}

func newRole() role { return role{changed: make(chan struct{})} }

// hear notes a ROLE, unless it is older than the last. It drops an untrusted
// origin: viewers follow it with their grants, and a sandbox must not choose
// where they go.
func (r *role) hear(m protocol.Role) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said && m.Generation <= r.last.Generation {
		return
	}
	if r.trust == nil || !r.trust(m.Origin) {
		m.Origin = ""
	}
	r.last, r.said = m, true
	close(r.changed)
	r.changed = make(chan struct{})
}

// Role returns the agent's last ROLE, whether there is one, and a channel that
// is closed at the next one.
func (s *Session) Role() (role protocol.Role, said bool, changed <-chan struct{}) {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	return s.role.last, s.role.said, s.role.changed
}

// SendRole tells the relay whether this tunnel is the agent's primary.
func (s *Session) SendRole(m protocol.Role) error { return s.write(m) }
