package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
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
	if !a.Want(history) {
		return
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.takeKeyframes(time.Now())
	t.arbiter.Poke()
}

// takeKeyframes takes the keyframes that are asked for and due, and returns how
// long until the next are. The caller holds view.mu: nobody
// who types waits for the drawing. Nothing is printed meanwhile.
func (t *Terminal) takeKeyframes(now time.Time) time.Duration {
	v := &t.view
	wanted := t.arbiter.Wanted()
	if wanted == (arbiter.Wishes{}) || v.display.Due() { // a new epoch pokes
		return arbiter.NoDeadline
	}
	// The screen of an ended program stays as it is, so that one may be had
	// again at once.
	if wait := v.taken.Add(protocol.KeyframeInterval).Sub(now); wait > 0 && !t.hasEnded() {
		return wait
	}
	v.taken = now
	var drawn [display.WishHistory]*display.Keyframe
	for i, yes := range wanted {
		if yes {
			drawn[i] = v.display.Keyframe(display.Wish(i + 1))
		}
	}
	t.arbiter.Deliver(wanted, drawn)
	return arbiter.NoDeadline
}

// mayTakeKeyframes takes the keyframes that somebody asked for who has got an
// earlier one now.
func (t *Terminal) mayTakeKeyframes() {
	if t.arbiter.Wanted() == (arbiter.Wishes{}) {
		return
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.takeKeyframes(time.Now())
	t.arbiter.Poke()
}
