package tunnel

import (
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// A status is the agent's last STATUS.
type status struct {
	// Guarded by mu.
	mu      sync.Mutex
	last    protocol.Status
	said    bool
	changed chan struct{} // closed and replaced with each STATUS
}

func newStatus() status { return status{changed: make(chan struct{})} }

func (s *status) hear(m protocol.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.said = m, true
	close(s.changed)
	s.changed = make(chan struct{})
}

// Status returns the agent's last STATUS, whether there is one, and a channel
// that is closed at the next one.
func (s *Session) Status() (status protocol.Status, said bool, changed <-chan struct{}) {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.last, s.status.said, s.status.changed
}

// SendStatus tells the relay the sandbox's problems.
func (s *Session) SendStatus(m protocol.Status) error { return s.write(m) }
