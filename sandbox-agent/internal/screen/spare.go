package screen

import (
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

// What xterm.js fails at, or takes very long for, viewers are spared: they get
// something else of the same effect, which is then what the screen obeys.

// maxRepeat is how often REP repeats at most.
const maxRepeat = 1<<16 - 1

// limitCount lowers the count of a control sequence that ends at in[end] if it
// is huge: xterm.js does one after the other, for hours if told so. But for REP
// the effect is the same. It returns true when nothing is left to do.
func (s *Screen) limitCount(final byte, end int) (done bool) {
	p := &s.params
	limit := grid.MaxSide
	switch final {
	case 'b':
		if s.nCollect == 0 {
			limit = s.grid.RepeatLimit(min(p.count(), maxRepeat))
		}
	case 'I', 'L', 'M', 'S', 'T', 'Z':
	default:
		return false
	}
	switch {
	case s.nCollect > 0 || p.count() <= limit:
		return false
	case limit == 0:
		s.replace(end, []byte("\x1b\\"))
		s.grid.Join, s.grid.InRun = 0, false
		return true
	}
	p.values[0] = int32(limit)
	s.replace(end, grid.AppendInt([]byte("\x1b["), limit, final))
	return false
}

// spareErase makes an erasing of everything up to the cursor, which ends at
// in[end], one of everything, where that is the same: at the end of a screen
// without history xterm.js fails at the former and shows nothing ever after.
// Some viewers may be without history even if there is some here.
func (s *Screen) spareErase(final byte, end int) {
	b, p := s.grid.Buf, &s.params
	selective := s.nCollect == 1 && s.identity(final) == query|'J'
	if final != 'J' || p.get(0) != 1 || s.nCollect > 0 && !selective || b.X+1 < b.Cols || b.Y+1 < b.Rows {
		return
	}
	all := "\x1b[2J"
	if selective {
		all = "\x1b[?2J"
	}
	p.values[0] = 2
	s.replace(end, []byte(all))
}

// spareAlternate has viewers enter the alternate screen twice if the size has
// shrunk since they left it, where the sequence that ends at in[end] enters it.
// xterm.js then has room for the old number of rows the first time, makes a
// history of it, and mixes the rows up when the size grows again.
func (s *Screen) spareAlternate(final byte, end int) {
	if final != 'h' || s.grid.Buf == s.grid.Alt || s.grid.Alt.Limit <= s.grid.Alt.Rows || s.identity(final) != query|'h' {
		return
	}
	p := &s.params
	for i := range p.n {
		switch p.get(i) {
		case 47, 1047, 1049:
			s.replace(end, append(p.append([]byte("\x1b[?47h\x1b[?47l\x1b[?")), 'h'))
			s.grid.UseAlternate()
			s.grid.UseNormal()
			return
		}
	}
}

// abandonOSC ends an OSC that is too long at in[i], without an effect: xterm.js
// takes minutes for one with a million colours.
func (s *Screen) abandonOSC(i int) {
	s.leaveOut(i, 0)
	s.out = append(s.out, can)
	s.state = abandonedOSC
	s.grid.Join = 0
}
