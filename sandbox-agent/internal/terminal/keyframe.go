package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
)

// WantKeyframe asks for a keyframe, with history or without. [Attachment.Next]
// returns it between the output on either side of its place, no sooner than
// protocol.KeyframeInterval after the one before. Before it has come, asking
// again changes nothing, except that a wish for history adds it. It does not
// come where the screen alone is over protocol.MaxKeyframeBytes.
//
// It waits while a chunk of output, of 32 KiB at most, is parsed and masked, and
// it draws the keyframe itself if that is due.
func (a *Attachment) WantKeyframe(history bool) {
	t := a.terminal
	if !a.want(history) {
		return
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
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
	a.wants = max(a.wants, display.WishScreen)
	if history {
		a.wants = display.WishHistory
	}
	return true
}

// takeKeyframes takes the keyframes that are asked for and due, and returns how
// long until the next are. The caller holds view.mu, and not arbiter.mu: nobody who
// types waits for the drawing. Nothing is printed meanwhile.
func (t *Terminal) takeKeyframes(now time.Time) time.Duration {
	v := &t.view
	wanted, ended := t.keyframesWanted()
	if wanted == [display.WishHistory]bool{} || v.display.Due() { // a new epoch pokes
		return noDeadline
	}
	// The screen of an ended program stays as it is, so that one may be had
	// again at once.
	if wait := v.taken.Add(protocol.KeyframeInterval).Sub(now); wait > 0 && !ended {
		return wait
	}
	v.taken = now
	var drawn [display.WishHistory]*display.Keyframe
	for i, yes := range wanted {
		if yes {
			drawn[i] = v.display.Keyframe(display.Wish(i + 1))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attachments {
		switch {
		case a.wants == display.WishNone || a.keyframe != nil:
			continue
		case !wanted[a.wants-1]: // since a moment ago
			t.poke()
			continue
		}
		a.keyframe, a.wants = drawn[a.wants-1], display.WishNone
		a.notify()
	}
	return noDeadline
}

// mayTakeKeyframes takes the keyframes that somebody asked for who has got an
// earlier one now.
func (t *Terminal) mayTakeKeyframes() {
	if wanted, _ := t.keyframesWanted(); wanted == [display.WishHistory]bool{} {
		return
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.takeKeyframes(time.Now())
	t.poke()
}

// keyframesWanted says for which wishes there is somebody who doesn't wait for
// an earlier keyframe to arrive, and whether the program has ended.
func (t *Terminal) keyframesWanted() (wanted [display.WishHistory]bool, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attachments {
		if a.wants != display.WishNone && a.keyframe == nil {
			wanted[a.wants-1] = true
		}
	}
	return wanted, !t.ended.IsZero()
}

// resized notes a size that is now in force at the head. A keyframe of another
// size that belongs here has lost its place in the log: it is taken anew. The
// caller holds view.mu, and not arbiter.mu.
func (t *Terminal) resized(cols, rows int) {
	t.view.display.Resize(cols, rows)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.transcript.Resize(cols, rows)
	head := t.transcript.Head()
	for a := range t.attachments {
		if a.keyframe != nil && a.keyframe.At.Offset() == head && a.sent == 0 {
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
	a.wants = max(a.wants, display.WishScreen)
	if a.keyframe.History {
		a.wants = display.WishHistory
	}
	a.keyframe = nil
	a.terminal.poke()
}

// piece returns the next piece of the keyframe that has begun. The caller holds
// arbiter.mu.
func (a *Attachment) piece() protocol.Keyframe {
	rest := a.keyframe.Bytes[a.sent:]
	p := rest[:min(len(rest), protocol.MaxKeyframePiece)]
	m := protocol.Keyframe{
		Offset: a.keyframe.At.Offset(), History: a.keyframe.History, Left: len(rest) - len(p), Bytes: p,
	}
	a.sent += len(p)
	if m.Left == 0 {
		a.keyframe, a.sent = nil, 0
	}
	return m
}
