package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/keyframe"

// AppendKeyframe appends bytes that give any terminal of the same size, in
// whatever state, the state of s: up to history newest rows above the screen,
// both screens, and all that decides about what comes next.
//
// A few things no sequence can say. Most take a change of size: cells and tab
// stops that a narrower size hides, half a wide character at the edge, a last
// row of nothing but such halves, a saved cursor below the screen, that a mark
// is to join a character that has been moved, the text of a cell in the last
// column that was overwritten. The others take the alternate screen: that the
// next character wraps behind an empty cell, and a pen that was restored on the
// normal screen with an underline but no style of it.
func (s *Screen) AppendKeyframe(dst []byte, history int) []byte {
	return s.appendUnfinished(keyframe.Append(dst, s.grid, history))
}

// AppendHandover appends bytes that take a terminal in the state of s from one
// program to another: whatever is unfinished is given up, modes, margins and pen
// become those of a new terminal, the normal screen is shown, and the cursor is
// at the beginning of a line. Then to is set, on an empty alternate screen if it
// is of one. Text stays. It returns the modes from before as well.
func (s *Screen) AppendHandover(dst []byte, to Modes) ([]byte, Modes) {
	return keyframe.AppendHandover(dst, s.grid, to)
}

// Modes are what [Screen.AppendHandover] takes from one program and gives back to
// it. The zero value stands for those of a new terminal.
type Modes = keyframe.Modes

// appendUnfinished appends the beginning of a sequence that was let out, or
// one that is as good.
func (s *Screen) appendUnfinished(dst []byte) []byte {
	if s.maybe {
		if s.escaped {
			dst = append(dst, esc)
		}
		return dst
	}
	switch s.state {
	case escape:
		dst = append(dst, esc)
	case escapeIntermediate:
		dst = append(append(dst, esc), s.collect[:s.nCollect]...)
	case csiEntry, csiParam, csiIntermediate:
		dst = append(dst, "\x1b["...)
		dst = s.appendSequence(dst, s.state == csiEntry)
	case csiIgnore:
		dst = append(dst, "\x1b[0<"...)
	case ignoredString:
		dst = append(dst, "\x1b_"...)
	case oscString:
		dst = append(append(dst, "\x1b]"...), s.str...)
		if s.strLong {
			dst = append(dst, 'x') // as good as what was forgotten
		}
	case dcsEntry, dcsParam, dcsIntermediate:
		dst = append(dst, "\x1bP"...)
		dst = s.appendSequence(dst, s.state == dcsEntry)
	case dcsIgnore:
		dst = append(dst, "\x1bP0<"...)
	case dcsString:
		dst = append(dst, "\x1bPx"...) // viewers obey none
	}
	return dst
}
