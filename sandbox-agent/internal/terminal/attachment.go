package terminal

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
)

// An Attachment is a relay's [arbiter.Stream] to a terminal, with the screen.
// [Attachment.Next] is for one goroutine; all else is safe for concurrent use.
// Only WantKeyframe and Resize wait, for the display.
type Attachment struct {
	*arbiter.Stream // static after construction
	terminal        *Terminal
	shows           bool // the terminal's end, to somebody who waits for it
}

// Attach opens a stream to the terminal, see [arbiter.Arbiter.Attach]. Close it
// when done.
func (t *Terminal) Attach(params protocol.TerminalParams) (*Attachment, protocol.TerminalOpened, error) {
	s, opened, err := t.arbiter.Attach(params)
	if err != nil {
		return nil, opened, err
	}
	return &Attachment{s, t, t.endDue.Load()}, opened, nil
}

// Next returns the next message for the relay, as [arbiter.Stream.Take] says, and
// waits until there is one. It also returns ctx's error.
func (a *Attachment) Next(ctx context.Context) (protocol.Message, error) {
	for {
		m, err := a.Poll()
		if m != nil || err != nil {
			return m, err
		}
		select {
		case <-a.Wake():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Poll implements [terminalstream.Poller].
func (a *Attachment) Poll() (protocol.Message, error) {
	m, wanted, err := a.Take(display.WishNone, nil)
	for wanted != display.WishNone {
		m, wanted, err = a.takeDrawn(wanted)
	}
	switch m := m.(type) {
	case protocol.Keyframe:
		if m.Left == 0 {
			a.terminal.mayTakeKeyframes()
		}
	case protocol.Exited:
		if a.shows {
			a.terminal.endSeen.Store(true)
		}
	}
	return m, err
}

// takeDrawn is Take with a keyframe of the present screen.
func (a *Attachment) takeDrawn(w display.Wish) (protocol.Message, display.Wish, error) {
	v := &a.terminal.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.display.Due() { // of the screen as it is there is no place in the log
		return a.Take(display.WishHistory, nil)
	}
	present := v.display.Keyframe(w)
	m, wanted, err := a.Take(w, present)
	if _, reset := m.(protocol.Reset); reset && present != nil {
		v.taken = time.Now()
	}
	return m, wanted, err
}
