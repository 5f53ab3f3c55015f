// Package flights keeps dispatches of commands apart: at most one of each command
// is under way, and whoever asks for the same one meanwhile waits for that.
package flights

import (
	"hash/fnv"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// A Set holds the dispatches under way, which come to an O. Its zero value is empty.
type Set[O any] struct {
	mu sync.Mutex
	of map[protocol.CommandID]*Flight[O] // guarded by mu

	boarding [64]sync.Mutex // one for each idempotency key, shared by several
}

// Board has one request at a time sign the command of a key and join its flight.
// Without it a second request could find the command signed and not under way,
// and take it for one that a relay has had. The caller calls done when it has
// joined.
func (s *Set[O]) Board(user protocol.UserID, key string) (done func()) {
	if key == "" {
		return func() {} // a command of its own
	}
	h := fnv.New32a()
	h.Write([]byte(string(user) + "\x00" + key))
	mu := &s.boarding[h.Sum32()%uint32(len(s.boarding))]
	mu.Lock()
	return mu.Unlock
}

// A Flight is one dispatch. What it came to is there once Done is closed.
type Flight[O any] struct {
	Done    chan struct{}
	Outcome O
	Err     error
}

// Join returns the flight of a command, and whether it is the caller's to fly.
func (s *Set[O]) Join(id protocol.CommandID) (_ *Flight[O], own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.of[id]; known != nil {
		return known, false
	}
	if s.of == nil {
		s.of = make(map[protocol.CommandID]*Flight[O])
	}
	s.of[id] = &Flight[O]{Done: make(chan struct{})}
	return s.of[id], true
}

// Land ends a flight that the caller has flown, after its outcome is stored.
func (s *Set[O]) Land(id protocol.CommandID, outcome O, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[id]
	own.Outcome, own.Err = outcome, err
	delete(s.of, id)
	close(own.Done)
}
