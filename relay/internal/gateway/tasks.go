package gateway

import (
	"context"
	"sync"
)

// Tasks are goroutines that somebody waits for at the end: sockets, and what their
// clients have asked for, which goes on without them. The zero value has none.
type Tasks struct {
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool // guarded by mu; once it is set, nothing is added
}

// Go runs fn on a goroutine that Close waits for. It reports whether it does: not
// once Close was called.
func (t *Tasks) Go(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running.Go(fn)
	}
	return !t.closed
}

// Close has Go refuse, calls end, if it isn't nil, which should end what runs, and
// waits for that until ctx ends.
func (t *Tasks) Close(ctx context.Context, end func()) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	if end != nil {
		end()
	}
	over := make(chan struct{})
	go func() { // ends with what runs
		t.running.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}
