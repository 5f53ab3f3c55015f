package tunnel

import (
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// A status is what the agent last said of how it is.
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

// Status returns the agent's last STATUS, whether it has said any, and a
// channel that is closed when it says another one.
func (s *Session) Status() (status protocol.Status, said bool, changed <-chan struct{}) {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.last, s.status.said, s.status.changed
}

// SendStatus tells the relay what is wrong with the sandbox.
func (s *Session) SendStatus(m protocol.Status) error { return s.write(m) }
