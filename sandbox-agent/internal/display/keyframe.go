package display

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

// maxHistoryBytes bounds what the lines above the screen add to a keyframe.
const maxHistoryBytes = 128 << 10

// A Keyframe is the screen at a place of the log. All who asked share it.
type Keyframe struct {
	At      bytelog.Cursor // behind the size that it has
	History bool
	Bytes   []byte // never changed
}

// A Wish says which keyframe is asked for. A greater one includes the others.
type Wish int

// What may be asked for.
const (
	WishNone    Wish = iota
	WishScreen       // no lines above the screen
	WishHistory      // with them
)

// frames caches keyframes of the screen as it is.
type frames [WishHistory]Keyframe // none where Bytes is nil

// Draw returns what has a terminal show the present screen: with as many of the
// lines above it as fit 128 KiB and protocol.MaxKeyframeBytes, or without when w
// doesn't ask for them.
func (d *Display) Draw(w Wish) []byte {
	bare := d.screen().AppendKeyframe(nil, 0)
	room := min(maxHistoryBytes, protocol.MaxKeyframeBytes-len(bare))
	if w == WishScreen || room <= 0 {
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

// Keyframe returns the keyframe of the present screen, which is that of the
// log's end. It is nil for a screen that is larger than a keyframe may be.
func (d *Display) Keyframe(w Wish) *Keyframe {
	f := &d.frames[w-1]
	if f.Bytes == nil {
		*f = Keyframe{At: d.transcript.End(), History: w == WishHistory, Bytes: d.Draw(w)}
	}
	if len(f.Bytes) > protocol.MaxKeyframeBytes {
		d.moved() // hold no such thing
		if d.tooLarge++; d.tooLarge == 1 {
			d.logs.Warn("a screen is too large for a keyframe")
		}
		return nil
	}
	taken := *f
	return &taken
}

// moved says that the screen is not what it was.
func (d *Display) moved() { d.frames = frames{} }
