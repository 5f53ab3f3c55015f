package client

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

// signal wakes those who wait. The caller holds mu.
func (v *Viewer) signal() {
	if v.waiters > 0 {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

// Await waits until done returns true. done is called with mu held, and so while
// no method of the handler runs. An error says what it waited for.
func (v *Viewer) Await(ctx context.Context, what string, done func() bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !done() {
		if v.closed {
			return fmt.Errorf("waiting for %s: %w: %s", what, errEnded, v.describe())
		}
		changed := v.changed
		v.waiters++
		v.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		v.mu.Lock()
		v.waiters--
		if err != nil && !done() {
			return fmt.Errorf("waiting for %s: %w: %s", what, err, v.describe())
		}
	}
	return nil
}

// describe describes the viewer's state. The caller holds mu.
func (v *Viewer) describe() string {
	text := fmt.Sprintf("at %v after %d sockets", v.position, v.counts.Sockets)
	if v.waiting {
		text += ", the sandbox is away"
	}
	if n := len(v.outbox.queue); n > 0 {
		text += fmt.Sprintf(", %d inputs unacknowledged", n)
	}
	if v.failure != nil {
		text += fmt.Sprintf(", the last failure: %v", v.failure)
	}
	return text
}

// AwaitJoined waits until a socket is greeted and has its keyframe.
func (v *Viewer) AwaitJoined(ctx context.Context) (Joining, error) {
	var j Joining
	err := v.Await(ctx, "the greeting", func() bool {
		j = v.joining
		return !j.Complete.IsZero()
	})
	return j, err
}

// Position returns the viewer's position, that of the next byte.
func (v *Viewer) Position() protocol.Position {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.position
}

// Counts returns the counts so far.
func (v *Viewer) Counts() Counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.counts
}

// Failure returns the last error, nil if there was none.
func (v *Viewer) Failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failure
}

// Do calls f while no method of the handler runs: f is called with mu held.
func (v *Viewer) Do(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
	v.signal()
}

// AwaitOffset waits until the viewer has reached offset in the terminal's
// output.
func (v *Viewer) AwaitOffset(ctx context.Context, offset uint64) error {
	return v.Await(ctx, fmt.Sprintf("offset %d", offset), func() bool { return v.position.Offset >= offset })
}

// Connected reports whether there is a greeted socket.
func (v *Viewer) Connected() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.socket != nil && v.socket.live
}

// LastFailure is [Viewer.Failure] for a function that Do or Await calls. The
// caller holds mu.
func (v *Viewer) LastFailure() error { return v.failure }
