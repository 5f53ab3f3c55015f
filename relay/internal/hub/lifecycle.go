package hub

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
)

// A lifecycle is the phase of a hub: viewers can't join yet, they can, or it is
// over.
type lifecycle struct {
	// Static after construction.
	ready chan struct{}   // closed once viewers may join, or err is set
	done  chan struct{}   // closed when run has returned
	over  context.Context // ends with done
	stop  context.CancelFunc

	// Set by run before ready is closed.
	err error

	// Owned by run.
	open bool // ready is closed
}

func newLifecycle() lifecycle {
	over, stop := context.WithCancel(context.Background())
	return lifecycle{ready: make(chan struct{}), done: make(chan struct{}), over: over, stop: stop}
}

// begin lets viewers join, or tells those who wait why they can't.
func (l *lifecycle) begin(err error) {
	if !l.open {
		l.err, l.open = err, true
		close(l.ready)
	}
}

// end marks the hub as over.
func (l *lifecycle) end() {
	l.stop()
	close(l.done)
}

// await waits until viewers may join.
func (l *lifecycle) await(ctx context.Context) error {
	select {
	case <-l.ready:
	case <-l.done:
	case <-ctx.Done():
		return protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
	}
	switch {
	case !l.dead():
		return nil
	case l.err != nil:
		return l.err
	}
	return protocol.Fault(protocol.KindUnavailable, nil)
}

// dead reports whether the hub is over, or has failed.
func (l *lifecycle) dead() bool {
	select {
	case <-l.done:
		return true
	default:
	}
	select {
	case <-l.ready:
		return l.err != nil
	default:
		return false
	}
}
