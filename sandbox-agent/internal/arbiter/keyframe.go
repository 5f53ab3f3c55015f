package arbiter

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
)

// Wishes says of each wish but none whether there is somebody who has it.
type Wishes [display.WishHistory]bool

// Want notes that a keyframe is asked for, with history or without, and reports
// whether there may be one. Before it has come, asking again changes nothing,
// except that a wish for history adds it.
func (a *Stream) Want(history bool) bool {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	if a.err != nil || a.ended {
		return false
	}
	a.wants = max(a.wants, display.WishScreen)
	if history {
		a.wants = display.WishHistory
	}
	return true
}

// Wanted says for which wishes there is somebody who doesn't wait for an earlier
// keyframe to arrive.
func (b *Arbiter) Wanted() (wanted Wishes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.streams {
		if a.wants != display.WishNone && a.keyframe == nil {
			wanted[a.wants-1] = true
		}
	}
	return wanted
}

// putOff gives up the keyframe that waits for a later one. The caller holds
// Arbiter.mu.
func (a *Stream) putOff() {
	if a.keyframe == nil {
		return
	}
	a.wants = max(a.wants, display.WishScreen)
	if a.keyframe.History {
		a.wants = display.WishHistory
	}
	a.keyframe = nil
	a.arbiter.Poke()
}

// piece returns the next piece of the keyframe that has begun. The caller holds
// Arbiter.mu.
func (a *Stream) piece() protocol.Keyframe {
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

// cutOff has the stream begin in the new epoch. The caller holds
// Arbiter.mu.
func (a *Stream) cutOff() {
	if a.ended {
		return
	}
	a.cut, a.cursor = true, bytelog.Cursor{}
	if a.sent == 0 {
		a.putOff()
	} else { // its pieces can't be parted; nobody will look at it
		blank := make([]byte, len(a.keyframe.Bytes))
		a.keyframe = &display.Keyframe{At: a.keyframe.At, History: a.keyframe.History, Bytes: blank}
	}
	a.notify()
}

// Deliver hands out the keyframes that were drawn for wanted, nil where there can
// be none. They are of the end of the log: nothing was printed since Wanted was
// called.
func (b *Arbiter) Deliver(wanted Wishes, drawn [display.WishHistory]*display.Keyframe) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.streams {
		switch {
		case a.wants == display.WishNone || a.keyframe != nil:
			continue
		case !wanted[a.wants-1]: // since a moment ago
			b.Poke()
			continue
		}
		a.keyframe, a.wants = drawn[a.wants-1], display.WishNone
		a.notify()
	}
}

// Resized writes a size that is now in force to the transcript. A keyframe of
// another size that belongs to its end has lost its place there: it must be taken
// anew.
func (b *Arbiter) Resized(cols, rows int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.o.Transcript.Resize(cols, rows)
	head := b.o.Transcript.Head()
	for a := range b.streams {
		if a.keyframe != nil && a.keyframe.At.Offset() == head && a.sent == 0 {
			a.putOff()
		}
	}
}

// BeginEpoch ends the epoch of the transcript and begins a new one with first, a
// keyframe's bytes. All streams go on there.
func (b *Arbiter) BeginEpoch(first []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.o.Transcript.Replace(first)
	for a := range b.streams {
		a.cutOff()
	}
	b.flow.due = false
	b.flow.letGo(b.stage.front, time.Now())
	b.Poke() // for those who wait for a keyframe
}
