package screen

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

// oscBytes takes the run of bytes at in[i] that are part of an OSC, or its
// end. It returns how many these are.
func (s *Screen) oscBytes(i int) int {
	switch c := s.in[i]; {
	case c == bel:
		wasQuery := s.endOSC(i+1, true)
		s.state = ground
		if !wasQuery {
			s.toGround()
		}
		return 1
	case c < ' ':
		return 1
	}
	n := 1
	for end := min(len(s.in)-i, maxHeld, maxString-len(s.str)); n < end; n++ {
		if c := s.in[i+n]; c < ' ' || c > del {
			break
		}
	}
	if s.maybe {
		n = 1 // each may tell that it is no query
	}
	s.addString(s.in[i : i+n])
	s.reviewOSC()
	return n
}

// reviewOSC lets an OSC out as soon as it can't be a query any more.
func (s *Screen) reviewOSC() {
	if s.maybe && !oscMayQuery(s.str) {
		s.clearUp()
	}
}

// oscMayQuery reports whether p may be the beginning of an OSC that asks.
func oscMayQuery(p []byte) bool {
	number, rest, complete := bytes.Cut(p, []byte{';'})
	if !complete {
		for _, n := range []string{"4", "10", "11", "12", "52"} {
			if strings.HasPrefix(n, string(number)) {
				return true
			}
		}
		return false
	}
	switch string(number) {
	case "4", "10", "11", "12":
		return true
	case "52":
		_, data, found := bytes.Cut(rest, []byte{';'})
		return !found || len(data) == 0 || string(data) == "?"
	}
	return false
}

// endOSC obeys an OSC. It reports whether that was a query, which is then
// taken out of the output: it ends at in[end], with BEL or ST.
func (s *Screen) endOSC(end int, withBel bool) (wasQuery bool) {
	number, data, hasData := bytes.Cut(s.str, []byte{';'})
	n, err := strconv.ParseUint(string(number), 10, 31)
	if s.strLong || err != nil {
		s.grid.Join = 0
		return false
	}
	st := "\x1b\\"
	if withBel {
		st = "\a"
	}
	switch n {
	case oscPalette, oscForeground, oscForeground + 1, oscCursor:
		return s.endColors(int(n), string(data), end, st)
	case oscClipboard:
		_, what, _ := bytes.Cut(data, []byte{';'})
		if s.maybe && string(what) == "?" {
			s.remove(end)
			return true
		}
	case oscTitleAndIcon, oscTitle:
		s.grid.Title = string(data)
	case oscHyperlink:
		if hasData {
			s.setLink(string(data))
		}
	case oscResetPalette:
		s.grid.Colors.Reset(string(data))
	case oscResetSpecial, oscResetSpecial + 1, oscResetSpecial + 2:
		s.grid.Colors.Special[n-oscResetSpecial] = grid.Color{}
	}
	s.grid.Join = 0
	return false
}

// endColors obeys an OSC that sets colours, asks for them, or both.
func (s *Screen) endColors(number int, data string, end int, st string) (wasQuery bool) {
	// An over-long query stays, to be ignored by all viewers.
	slots := strings.Split(data, ";")
	var set []byte
	asked := false
	next := 1
	if number == oscPalette {
		next = 2
	}
	for i := 0; i+next <= len(slots); i += next {
		spec := slots[i+next-1]
		target, name := colorTarget(&s.grid.Colors, number, slots[i], i)
		if target == nil {
			continue
		}
		if spec == "?" {
			asked = true
			if s.maybe {
				s.answers = append(append(append(s.answers, name...), s.grid.Colors.Format(target)...), st...)
			}
		} else if c, ok := grid.ParseColor(spec); ok {
			*target = c
			set = append(append(append(set, name...), c.Format()...), st...)
		}
	}
	if !asked || !s.maybe {
		s.grid.Join = 0
		return false
	}
	if len(set) == 0 {
		s.remove(end)
		return true
	}
	s.replace(end, set)
	s.grid.Join, s.grid.InRun = 0, false
	return true
}

// setLink obeys OSC 8.
func (s *Screen) setLink(data string) {
	params, uri, ok := strings.Cut(data, ";")
	params = strings.TrimSpace(params)
	if !ok || uri == "" && params != "" {
		return
	}
	l := grid.Link{URI: uri}
	if uri != "" {
		for _, p := range strings.Split(params, ":") {
			if id, found := strings.CutPrefix(p, "id="); found {
				l.ID = id
				break
			}
		}
	}
	s.grid.OpenLink(l)
}

// colorTarget returns the colour that a slot of an OSC is about, nil when there is
// none, and the OSC up to its value. For the palette key is its index, else
// slot counts from number.
func colorTarget(c *grid.Colors, number int, key string, slot int) (target *grid.Color, name []byte) {
	if number == oscPalette {
		i, ok := grid.PaletteIndex(key)
		if !ok {
			return nil, nil
		}
		return &c.Palette[i], grid.AppendInt([]byte("\x1b]4;"), i, ';')
	}
	i := number - oscForeground + slot
	if i >= len(c.Special) {
		return nil, nil
	}
	return &c.Special[i], grid.AppendInt([]byte("\x1b]"), oscForeground+i, ';')
}
