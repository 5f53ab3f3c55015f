package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// ground parses from in[i] on, outside of any sequence. It returns how many
// bytes it took, 0 when there is only the beginning of a character.
func (s *Screen) ground(i int) int {
	c := s.in[i]
	switch {
	case c >= ' ' && c < del:
		if s.grid.Charsets.Current != grid.CharsetASCII || s.grid.Modes.Insert || s.grid.Join.Class() == grid.ClassPrepend {
			return s.printSlowly(i)
		}
		return s.grid.PrintASCII(s.in[i:])
	case c > del:
		return s.printText(i)
	case c == esc:
		s.suspect(i, false)
		s.begin(escape)
	case c == enq:
		s.leaveOut(i, 1)
		if breaksCharacter(s.in[:i]) {
			s.separate()
		}
	case c == del:
		s.grid.InRun = false
		s.grid.Tangle()
	default:
		s.grid.Execute(rune(c))
	}
	return 1
}

// inSequence parses from in[i] on, within a sequence, like ground.
func (s *Screen) inSequence(i int) int {
	c := s.in[i]
	if s.maybe && s.maybeSize+i >= maxHeld {
		s.clearUp()
	}
	if s.state == oscString && s.strLong && s.oscCounts() {
		s.abandonOSC(i)
	}
	switch {
	case c == esc:
		s.interrupt(i)
		return 1
	case c == can || c == sub:
		s.clearUp()
		s.state = ground
		s.grid.Execute(rune(c))
		return 1
	case c >= 0x80:
		r, n := decode(s.in[i:])
		if r > 0 && r < 0xa0 {
			s.control(r, i, n)
		} else if s.state == abandonedOSC {
			s.leaveOut(i, n)
		} else if r > 0 {
			s.step(r, s.in[i:i+n])
		}
		return n
	}
	switch s.state {
	case abandonedOSC:
		s.leaveOut(i, 1)
		if c == bel {
			s.toGround()
		}
		return 1
	case oscString:
		return s.oscBytes(i)
	case csiEntry, csiParam:
		if c >= '0' && c <= ';' {
			s.state = csiParam
			s.params.add(c)
			return 1
		}
		if c >= '@' && c < del {
			s.dispatchCSI(c, i)
			return 1
		}
	case escape:
		if c == '[' {
			s.begin(csiEntry)
			return 1
		}
	}
	s.stepASCII(c, i)
	return 1
}

// interrupt takes an ESC within a sequence.
func (s *Screen) interrupt(i int) {
	wasQuery := false
	switch s.state {
	case oscString:
		wasQuery = s.endOSC(i, false)
	case dcsString:
		wasQuery = s.endDCS(i)
	}
	if wasQuery {
		s.suspect(i, false)
		s.closing = true
	} else {
		s.clearUp()
		s.suspect(i+1, true)
	}
	s.begin(escape)
}

// control takes a C1 control, in[i:i+n].
func (s *Screen) control(r rune, i, n int) {
	wasGround := s.state == ground
	switch r {
	case c1ST:
		wasQuery := s.state == oscString && s.endOSC(i+n, false) || s.state == dcsString && s.endDCS(i+n)
		s.state = ground
		if !wasQuery {
			s.toGround()
		}
		return
	case c1CSI, c1OSC, c1DCS, c1SOS, c1PM, c1APC:
		s.clearUp()
		if wasGround {
			s.suspect(i, false)
		}
	default:
		s.clearUp()
		s.state = ground
		s.grid.Execute(r)
		return
	}
	switch r {
	case c1CSI:
		s.begin(csiEntry)
	case c1DCS:
		s.begin(dcsEntry)
	case c1OSC:
		s.beginOSC()
	default:
		s.begin(ignoredString)
		s.clearUp()
	}
}

// stepASCII takes a character below 0x80 that is not ESC, CAN or SUB.
func (s *Screen) stepASCII(c byte, i int) {
	if c < ' ' || c == del {
		s.within(c)
		return
	}
	switch s.state {
	case escape:
		s.stepEscape(c, i)
	case escapeIntermediate, csiEntry, csiParam, csiIntermediate:
		s.stepControl(c, i)
	case csiIgnore:
		if c >= '@' {
			s.toGround()
		}
	case dcsEntry, dcsParam, dcsIntermediate:
		s.stepDCS(c)
	case dcsString:
		s.dcsByte(c)
	}
}

// within takes a C0 control or DEL within a sequence.
func (s *Screen) within(c byte) {
	switch s.state {
	case escape, escapeIntermediate, csiEntry, csiParam, csiIntermediate, csiIgnore:
		s.clearUp()
		if c != del {
			s.grid.Execute(rune(c))
		}
	case dcsString:
		s.dcsByte(c)
	}
}

// stepEscape takes the character behind ESC.
func (s *Screen) stepEscape(c byte, i int) {
	switch {
	case c == '[':
		s.begin(csiEntry)
	case c == ']':
		s.beginOSC()
	case c == 'P':
		s.begin(dcsEntry)
	case c == 'X' || c == '^' || c == '_':
		s.clearUp()
		s.begin(ignoredString)
	case c < '0':
		s.clearUp()
		s.collectByte(c)
		s.state = escapeIntermediate
	default:
		s.stepControl(c, i)
	}
}

// stepControl takes a printable character of an escape or control sequence
// that is no part of a parameter.
func (s *Screen) stepControl(c byte, i int) {
	isCSI := s.state != escape && s.state != escapeIntermediate
	switch {
	case isCSI && c >= '@':
		s.dispatchCSI(c, i)
	case !isCSI && c >= '0':
		s.dispatchEscape(c, i)
	case c < '0':
		s.collectByte(c)
		if isCSI {
			s.state = csiIntermediate
		}
	case s.state == csiEntry && c <= ';', s.state == csiParam && c <= ';':
		s.state = csiParam
		s.params.add(c)
	case s.state == csiEntry:
		s.collectByte(c)
		s.state = csiParam
	default:
		s.clearUp()
		s.state = csiIgnore
	}
}

// step takes a character from 0xa0 on within a sequence.
func (s *Screen) step(r rune, encoded []byte) {
	switch s.state {
	case oscString:
		s.addString(encoded)
		s.reviewOSC()
	case dcsString:
		for _, c := range encoded {
			s.dcsByte(c)
		}
	case csiIgnore, dcsIgnore:
	default:
		s.toGround() // an error: the character is dropped
	}
}

// stepDCS takes a printable character before a DCS' string.
func (s *Screen) stepDCS(c byte) {
	switch {
	case c >= '@':
		s.final = c
		s.state = dcsString
		s.str, s.strLong = s.str[:0], false
		if !s.dcsMayQuery() {
			s.clearUp()
		}
	case c < '0':
		s.collectByte(c)
		s.state = dcsIntermediate
	case s.state == dcsIntermediate:
		s.state = dcsIgnore
		s.clearUp()
	case c <= ';':
		s.params.add(c)
		s.state = dcsParam
	case s.state == dcsEntry:
		s.collectByte(c)
		s.state = dcsParam
	default:
		s.state = dcsIgnore
		s.clearUp()
	}
}
