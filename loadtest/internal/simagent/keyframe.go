package simagent

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

const (
	// maxScreen bounds what a keyframe shows of the output, in bytes, and
	// maxHistory with lines above the screen.
	maxScreen  = 32 << 10
	maxHistory = 128 << 10
	// fresh makes a terminal forget everything.
	fresh = "\x1bc"
)

// A keyframe is the screen at a place of the log.
type keyframe struct {
	at      bytelog.Cursor
	history bool
	bytes   []byte // never changed
}

// want asks for a keyframe. It is called with mu held.
func (a *attachment) want(history bool) {
	if a.err != nil || a.ended {
		return
	}
	a.wants, a.history = true, a.history || history
	a.terminal.draw()
}

// putOff gives up a keyframe for a later one. It is called with mu held.
func (a *attachment) putOff() {
	if a.keyframe == nil {
		return
	}
	a.wants, a.history = true, a.history || a.keyframe.history
	a.keyframe = nil
	a.terminal.draw()
}

// draw draws the keyframes that are wanted, or has them drawn once one is due.
// It is called with mu held.
func (t *terminal) draw() {
	now := time.Now()
	if wait := t.drawn.Add(protocol.KeyframeInterval).Sub(now); wait > 0 && !t.ended {
		if t.drawing == nil {
			t.drawing = time.AfterFunc(wait, func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.drawing = nil
				t.draw()
			})
		}
		return
	}
	var frames [2]*keyframe // without and with history
	for a := range t.attachments {
		if !a.wants || a.keyframe != nil || a.err != nil {
			continue
		}
		i := 0
		if a.history {
			i = 1
		}
		if frames[i] == nil {
			frames[i] = t.screen(a.history)
			t.drawn = now
		}
		a.keyframe, a.wants, a.history = frames[i], false, false
		a.notify()
	}
}

// screen returns the last output in whole lines: what a terminal that saw no
// more than that would show. What the machine writes moves no cursor and sets no
// modes, so that is the screen, but for its being longer. The caller holds mu.
func (t *terminal) screen(history bool) *keyframe {
	limit := maxScreen
	if history {
		limit = maxHistory
	}
	f := &keyframe{at: t.place(t.log.Head()), history: history, bytes: []byte(fresh)}
	for c := t.place(t.log.LineStart(limit)); ; {
		item, ok, err := t.log.Next(&c, limit)
		if err != nil || !ok || item.Exited != nil {
			return f
		}
		f.bytes = append(f.bytes, item.Bytes...)
	}
}

// piece returns the next piece of the keyframe that has begun. It is called with
// mu held.
func (a *attachment) piece() protocol.Keyframe {
	rest := a.keyframe.bytes[a.sent:]
	p := rest[:min(len(rest), protocol.MaxKeyframePiece)]
	m := protocol.Keyframe{
		Offset: a.keyframe.at.Offset(), History: a.keyframe.history, Left: len(rest) - len(p), Bytes: p,
	}
	a.sent += len(p)
	if m.Left == 0 {
		a.keyframe, a.sent = nil, 0
		if a.wants {
			a.terminal.draw()
		}
	}
	return m
}
