package peer

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
)

// What the first byte of ttyd's messages means, in both directions.
const ttydText = '0'

const (
	// ttydHello is the first message to ttyd, which starts the program.
	ttydHello = `{"AuthToken":"","columns":120,"rows":40}`
	// echoWait bounds the time until the program in ttyd's terminal echoes.
	echoWait = 10 * time.Second
	// maxLines bounds what is kept of what it says before, in bytes.
	maxLines = 64 << 10
)

// A Terminal is one that ttyd serves, in which the source runs.
type Terminal struct {
	// Static after construction.
	link client.Link

	mu sync.Mutex
	// Guarded by mu.
	changed chan struct{} // closed and replaced at each change
	frames  frames
	said    []byte         // until somebody follows
	next    client.Handler // gets the output; nil: said does
	over    error
}

// Echo opens a terminal of ttyd's in which the source echoes each key. by serves
// the socket.
func (p *Peer) Echo(ctx context.Context, by client.Transport) (*Terminal, error) {
	ctx, cancel := context.WithTimeout(ctx, echoWait)
	defer cancel()
	conn, early, err := p.dial(ctx, "/ws", "tty")
	if err != nil {
		return nil, fmt.Errorf("ttyd: %w", err)
	}
	t := &Terminal{changed: make(chan struct{})}
	if t.link, err = by.Adopt(conn, t); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ttyd: %w", err)
	}
	if err = t.link.Begin(early); err == nil {
		err = t.begin(ctx, p.Key)
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("ttyd: %w", err)
	}
	return t, nil
}

// begin starts the program and has it echo. Before anything else it wants the key,
// as ttyd asks nobody on this machine who he is.
func (t *Terminal) begin(ctx context.Context, key string) error {
	if err := t.link.Write(clientFrame(opBinary, []byte(ttydHello))); err != nil {
		return err
	}
	for _, step := range []struct{ say, hear string }{{key + "\n", "ready\r\n"}, {"echo\n", "echoing\r\n"}} {
		if err := t.Type(ctx, step.say, nil); err != nil {
			return err
		}
		err := t.Await(ctx, "the source", func() bool {
			_, rest, found := bytes.Cut(t.said, []byte(step.hear))
			if found {
				t.said = rest
			}
			return found
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Follow has h hear all that comes from now on.
func (t *Terminal) Follow(h client.Handler) { t.Do(func() { t.next = h }) }

// Type types keys. Nobody says that they were written, so written isn't called.
func (t *Terminal) Type(_ context.Context, keys string, _ func(at time.Time)) error {
	return t.link.Write(clientFrame(opBinary, append([]byte{ttydText}, keys...)))
}

// Do calls f while no output is handled: f is called with mu held.
func (t *Terminal) Do(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	t.signal()
}

// Await waits until done, which is called with mu held, returns true.
func (t *Terminal) Await(ctx context.Context, what string, done func() bool) error {
	for {
		t.mu.Lock()
		ok, over, changed := done(), t.over, t.changed
		t.mu.Unlock()
		switch {
		case ok:
			return nil
		case over != nil:
			return fmt.Errorf("waiting for %s: %w", what, over)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}

// Close ends the terminal.
func (t *Terminal) Close() { t.link.Close() }

// signal wakes those who wait. The caller holds mu.
func (t *Terminal) signal() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Received implements [client.Receiver].
func (t *Terminal) Received(p []byte, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.signal()
	return t.frames.feed(p, func(opcode byte, payload []byte) error {
		switch {
		case opcode == opPing:
			return t.link.Write(clientFrame(opPong, payload))
		case opcode == opClose:
			return errEnd
		case len(payload) == 0 || payload[0] != ttydText:
			return nil // the window's title, preferences
		case t.next != nil:
			t.next.Output(payload[1:], at)
		case len(t.said)+len(payload) <= maxLines:
			t.said = append(t.said, payload[1:]...)
		}
		return nil
	})
}

// Swept implements [client.Receiver].
func (t *Terminal) Swept(time.Time) {}

// Ended implements [client.Receiver].
func (t *Terminal) Ended(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = why
	t.signal()
}
