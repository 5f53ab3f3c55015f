package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

// maxHistoryBytes bounds what the lines above the screen add to a keyframe.
const maxHistoryBytes = 128 << 10

// A keyframe is the screen at a place of the log. All who asked share it.
type keyframe struct {
	at      bytelog.Cursor // behind the size that it has
	history bool
	bytes   []byte // never changed
}

// A wish says which keyframe is asked for.
type wish int

const (
	wishNone    wish = iota
	wishScreen       // no lines above the screen
	wishHistory      // with them
)

// A keyframer takes the keyframes of a terminal. The terminal's mutex guards
// it.
type keyframer struct {
	grid     grid
	taken    time.Time             // the last one
	cached   [wishHistory]keyframe // of the present screen; none where bytes is nil
	tooLarge int                   // screens that no keyframe can hold
}

// moved says that the screen is not what it was.
func (k *keyframer) moved() { k.cached = [wishHistory]keyframe{} }

// at returns the keyframe of the present screen, which the log shows at at. It
// is false for a screen of which there can be none.
func (k *keyframer) at(at bytelog.Cursor, w wish) (*keyframe, bool) {
	f := &k.cached[w-1]
	if f.bytes == nil {
		*f = keyframe{at: at, history: w == wishHistory, bytes: k.draw(w)}
	}
	if len(f.bytes) > protocol.MaxKeyframeBytes {
		k.moved() // hold no such thing
		k.tooLarge++
		return nil, false
	}
	taken := *f
	return &taken, true
}

// draw returns the present screen with as many of the lines above it as fit
// both bounds, or without when w doesn't ask for them.
func (k *keyframer) draw(w wish) []byte {
	bare := k.grid.AppendKeyframe(nil, 0)
	room := min(maxHistoryBytes, protocol.MaxKeyframeBytes-len(bare))
	if w == wishScreen || room <= 0 {
		return bare
	}
	for lines := protocol.MaxKeyframeHistory; lines > 0; {
		all := k.grid.AppendKeyframe(nil, lines)
		over := len(all) - len(bare)
		if over <= room {
			return all
		}
		lines = min(lines*room/over, lines*7/8) // a line is one as others are
	}
	return bare
}

// WantKeyframe asks for a keyframe, with history or without. [Attachment.Next]
// returns it between the output on either side of its place, no sooner than
// protocol.KeyframeInterval after the one before. Before it has come, asking
// again changes nothing, except that a wish for history adds it. It does not
// come where the screen alone is over protocol.MaxKeyframeBytes.
func (a *Attachment) WantKeyframe(history bool) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.err != nil || a.ended {
		return
	}
	a.wants = max(a.wants, wishScreen)
	if history {
		a.wants = wishHistory
	}
	t.takeKeyframes(time.Now())
	t.poke()
}

// takeKeyframes takes the keyframes that are asked for and due, and returns how
// long until the next are. It is called with mu held.
func (t *Terminal) takeKeyframes(now time.Time) time.Duration {
	k := &t.keyframes
	if !t.keyframeWanted() || t.mask.due { // a new epoch pokes
		return noDeadline
	}
	// The screen of an ended program stays as it is, so that one may be had
	// again at once.
	if wait := k.taken.Add(protocol.KeyframeInterval).Sub(now); wait > 0 && t.ended.IsZero() {
		return wait
	}
	k.taken = now
	for a := range t.attachments {
		if a.wants == wishNone || a.keyframe != nil {
			continue
		}
		var ok bool
		a.keyframe, ok = k.at(t.head(), a.wants)
		a.wants = wishNone
		if !ok && k.tooLarge == 1 {
			t.log.Warn("a screen is too large for a keyframe")
		}
		a.notify()
	}
	return noDeadline
}

// keyframeAtHead takes the keyframe that a asks for, due or not. It is called
// with mu held.
func (t *Terminal) keyframeAtHead(a *Attachment, now time.Time) (ok bool) {
	if a.wants == wishNone || t.mask.due {
		return false
	}
	if a.keyframe, ok = t.keyframes.at(t.head(), a.wants); ok {
		a.wants, t.keyframes.taken = wishNone, now
	}
	return ok
}

// keyframeWanted reports whether somebody asks for a keyframe who doesn't wait
// for an earlier one to arrive.
func (t *Terminal) keyframeWanted() bool {
	for a := range t.attachments {
		if a.wants != wishNone && a.keyframe == nil {
			return true
		}
	}
	return false
}

// head returns a cursor behind everything in the log but the end.
func (t *Terminal) head() bytelog.Cursor {
	cursor, err := t.output.CursorAt(t.output.Head())
	if err != nil {
		panic("terminal: the head is outside the log: " + err.Error()) // it never is
	}
	return cursor
}

// resized notes a size that is now in force at the head. A keyframe of another
// size that belongs here has lost its place in the log: it is taken anew. It is
// called with mu held.
func (t *Terminal) resized(cols, rows int) {
	t.keyframes.grid.Resize(cols, rows)
	if t.mask.raw != nil {
		t.mask.raw.Resize(cols, rows)
	}
	t.keyframes.moved()
	t.output.Resize(cols, rows)
	for a := range t.attachments {
		if a.keyframe != nil && a.keyframe.at.Offset() == t.output.Head() && a.sent == 0 {
			a.putOff()
		}
	}
	t.wakeAll()
}

// putOff gives up the keyframe that waits for a later one. It is called with
// terminal.mu held.
func (a *Attachment) putOff() {
	if a.keyframe == nil {
		return
	}
	a.wants = max(a.wants, wishScreen)
	if a.keyframe.history {
		a.wants = wishHistory
	}
	a.keyframe = nil
	a.terminal.poke()
}

// piece returns the next piece of the keyframe that has begun.
func (a *Attachment) piece() protocol.Keyframe {
	rest := a.keyframe.bytes[a.sent:]
	p := rest[:min(len(rest), protocol.MaxKeyframePiece)]
	m := protocol.Keyframe{
		Offset: a.keyframe.at.Offset(), History: a.keyframe.history, Left: len(rest) - len(p), Bytes: p,
	}
	a.sent += len(p)
	if m.Left == 0 {
		a.keyframe, a.sent = nil, 0
		if a.wants != wishNone {
			a.terminal.takeKeyframes(time.Now())
			a.terminal.poke()
		}
	}
	return m
}
