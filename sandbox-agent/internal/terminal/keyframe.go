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

// frames caches keyframes of the screen as it is.
type frames [wishHistory]keyframe // none where bytes is nil

// draw returns the present screen with as many of the lines above it as fit
// both bounds, or without when w doesn't ask for them. The caller holds mu.
func (d *display) draw(w wish) []byte {
	bare := d.screen().AppendKeyframe(nil, 0)
	room := min(maxHistoryBytes, protocol.MaxKeyframeBytes-len(bare))
	if w == wishScreen || room <= 0 {
		return bare
	}
	for lines := protocol.MaxKeyframeHistory; lines > 0; {
		all := d.screen().AppendKeyframe(nil, lines)
		over := len(all) - len(bare)
		if over <= room {
			return all
		}
		lines = min(lines*room/over, lines*7/8) // a line is one as others are
	}
	return bare
}

// keyframe returns the keyframe of the present screen, which is that of the
// log's end; nil for a screen of which there can be none. The caller holds mu.
func (d *display) keyframe(w wish) *keyframe {
	f := &d.frames[w-1]
	if f.bytes == nil {
		*f = keyframe{at: d.transcript.End(), history: w == wishHistory, bytes: d.draw(w)}
	}
	if len(f.bytes) > protocol.MaxKeyframeBytes {
		d.moved() // hold no such thing
		if d.tooLarge++; d.tooLarge == 1 {
			d.logs.Warn("a screen is too large for a keyframe")
		}
		return nil
	}
	taken := *f
	return &taken
}

// moved says that the screen is not what it was. The caller holds mu.
func (d *display) moved() { d.frames = frames{} }

// WantKeyframe asks for a keyframe, with history or without. [Attachment.Next]
// returns it between the output on either side of its place, no sooner than
// protocol.KeyframeInterval after the one before. Before it has come, asking
// again changes nothing, except that a wish for history adds it. It does not
// come where the screen alone is over protocol.MaxKeyframeBytes.
func (a *Attachment) WantKeyframe(history bool) {
	t := a.terminal
	if !a.want(history) {
		return
	}
	t.display.mu.Lock()
	defer t.display.mu.Unlock()
	t.takeKeyframes(time.Now())
	t.poke()
}

// want notes that a keyframe is asked for, and reports whether there may be one.
func (a *Attachment) want(history bool) bool {
	a.terminal.mu.Lock()
	defer a.terminal.mu.Unlock()
	if a.err != nil || a.ended {
		return false
	}
	a.wants = max(a.wants, wishScreen)
	if history {
		a.wants = wishHistory
	}
	return true
}

// takeKeyframes takes the keyframes that are asked for and due, and returns how
// long until the next are. The caller holds display.mu, and not arbiter.mu: nobody who
// types waits for the drawing. Nothing is printed meanwhile.
func (t *Terminal) takeKeyframes(now time.Time) time.Duration {
	d := t.display
	wanted, ended := t.keyframesWanted()
	if wanted == [wishHistory]bool{} || d.due { // a new epoch pokes
		return noDeadline
	}
	// The screen of an ended program stays as it is, so that one may be had
	// again at once.
	if wait := d.taken.Add(protocol.KeyframeInterval).Sub(now); wait > 0 && !ended {
		return wait
	}
	d.taken = now
	var drawn [wishHistory]*keyframe
	for i, yes := range wanted {
		if yes {
			drawn[i] = d.keyframe(wish(i + 1))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attachments {
		switch {
		case a.wants == wishNone || a.keyframe != nil:
			continue
		case !wanted[a.wants-1]: // since a moment ago
			t.poke()
			continue
		}
		a.keyframe, a.wants = drawn[a.wants-1], wishNone
		a.notify()
	}
	return noDeadline
}

// mayTakeKeyframes takes the keyframes that somebody asked for who has got an
// earlier one now.
func (t *Terminal) mayTakeKeyframes() {
	if wanted, _ := t.keyframesWanted(); wanted == [wishHistory]bool{} {
		return
	}
	t.display.mu.Lock()
	defer t.display.mu.Unlock()
	t.takeKeyframes(time.Now())
	t.poke()
}

// keyframesWanted says for which wishes there is somebody who doesn't wait for
// an earlier keyframe to arrive, and whether the program has ended.
func (t *Terminal) keyframesWanted() (wanted [wishHistory]bool, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attachments {
		if a.wants != wishNone && a.keyframe == nil {
			wanted[a.wants-1] = true
		}
	}
	return wanted, !t.ended.IsZero()
}

// resized notes a size that is now in force at the head. A keyframe of another
// size that belongs here has lost its place in the log: it is taken anew. The
// caller holds display.mu, and not arbiter.mu.
func (t *Terminal) resized(cols, rows int) {
	t.display.resize(cols, rows)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.transcript.Resize(cols, rows)
	head := t.transcript.Head()
	for a := range t.attachments {
		if a.keyframe != nil && a.keyframe.at.Offset() == head && a.sent == 0 {
			a.putOff()
		}
	}
}

// putOff gives up the keyframe that waits for a later one. The caller holds
// arbiter.mu.
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

// piece returns the next piece of the keyframe that has begun. The caller holds
// arbiter.mu.
func (a *Attachment) piece() protocol.Keyframe {
	rest := a.keyframe.bytes[a.sent:]
	p := rest[:min(len(rest), protocol.MaxKeyframePiece)]
	m := protocol.Keyframe{
		Offset: a.keyframe.at.Offset(), History: a.keyframe.history, Left: len(rest) - len(p), Bytes: p,
	}
	a.sent += len(p)
	if m.Left == 0 {
		a.keyframe, a.sent = nil, 0
	}
	return m
}
