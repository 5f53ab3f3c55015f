package controlplane

import (
	"hash/fnv"
	"sync"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// flights are the dispatches under way, at most one of each command: who asks
// for the same command meanwhile waits for that one. Its zero value is empty.
type flights struct {
	mu sync.Mutex
	of map[protocol.CommandID]*flight // guarded by mu

	boarding [64]sync.Mutex // of each idempotency key one, shared by several
}

// board has one request at a time sign the command of a key and join its flight.
// Without it a second request could find the command signed and not under way,
// and take it for one that a relay has had. The caller calls done when it has
// joined.
func (f *flights) board(user protocol.UserID, key string) (done func()) {
	if key == "" {
		return func() {} // a command of its own
	}
	h := fnv.New32a()
	h.Write([]byte(string(user) + "\x00" + key))
	mu := &f.boarding[h.Sum32()%uint32(len(f.boarding))]
	mu.Lock()
	return mu.Unlock
}

// A flight is one dispatch. What it came to is there once done is closed.
type flight struct {
	done    chan struct{}
	outcome store.Outcome
	err     error
}

// join returns the flight of a command, and whether it is the caller's to fly.
func (f *flights) join(id protocol.CommandID) (_ *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.of[id]; known != nil {
		return known, false
	}
	if f.of == nil {
		f.of = make(map[protocol.CommandID]*flight)
	}
	f.of[id] = &flight{done: make(chan struct{})}
	return f.of[id], true
}

// land ends a flight that the caller has flown, after its outcome is stored.
func (f *flights) land(id protocol.CommandID, outcome store.Outcome, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.of[id]
	own.outcome, own.err = outcome, err
	delete(f.of, id)
	close(own.done)
}
