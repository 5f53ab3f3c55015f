package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// Resize asks for another size under r's term; under any other, and while a
// coding agent runs or is being stopped, nothing happens. The size becomes an
// event in the log once it is applied, which may take a moment when sizes follow
// each other closely. Resize waits while a chunk of output, of 32 KiB at most, is
// parsed and masked.
func (a *Attachment) Resize(r protocol.Resize) {
	t := a.terminal
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	if a.AskSize(r) {
		t.resize()
	}
}

// Resize gives the terminal id of session another size, whoever controls it. It
// fails with KindInvalid for a size below protocol.MinCols × protocol.MinRows,
// takes one beyond the largest as that, and fails with KindEnded when the
// program has ended. The size is in force a moment later when sizes follow each
// other closely.
func (h *Host) Resize(session protocol.SessionID, id protocol.PTYID, cols, rows int) error {
	if cols < protocol.MinCols || rows < protocol.MinRows {
		return protocol.Errorf(protocol.KindInvalid, "not a size: %d×%d", cols, rows)
	}
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	if err := t.arbiter.AskSize(cols, rows); err != nil {
		return err
	}
	t.resize()
	return nil
}

// resize puts the size that was asked for in force, or has tick do it. The caller
// holds view.mu.
func (t *Terminal) resize() {
	if t.takeSize(time.Now()) != arbiter.NoDeadline {
		t.arbiter.Poke()
	}
}

// takeSize puts the size in force that was asked for, if it needn't wait, and
// returns how long it must. The caller holds view.mu.
func (t *Terminal) takeSize(now time.Time) time.Duration {
	cols, rows, wait := t.arbiter.TakeSize(now)
	if wait > 0 {
		return wait
	}
	if cols > 0 {
		t.resized(cols, rows)
	}
	return arbiter.NoDeadline
}

// resized has the screen and the log get a size that is now in force. The caller
// holds view.mu.
func (t *Terminal) resized(cols, rows int) {
	t.view.display.Resize(cols, rows)
	t.arbiter.Resized(cols, rows)
}

// tick does what is due and returns how long until something is again.
func (t *Terminal) tick() time.Duration {
	now := time.Now()
	next := t.arbiter.Tick(now) // first: a grace that is over waits for no parsing
	return max(min(next, t.tickDisplay(now)), 0)
}

// tickDisplay does what is due of the screen and the log.
func (t *Terminal) tickDisplay(now time.Time) time.Duration {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	return min(t.takeSize(now), t.takeKeyframes(now), t.beginAnewIfDue(now))
}
