package screen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// A verdict is what became of a script.
type verdict struct {
	difference string   // empty: none
	failed     string   // how xterm.js itself fails before the script's end
	unsteady   bool     // and what it shows depends on how the output is cut
	exempt     []string // what of states no output leads to
	spared     []string // what viewers got something else instead of, and why
}

// check compares all there is to compare.
func (s *script) check(t testing.TB, o *oracle, newGrid func(cols, rows int) grid) verdict {
	t.Helper()
	var v verdict
	limit := int(^uint(0) >> 1)
	for {
		p, crash := s.attempt(newGrid, limit)
		if v.difference = crash; crash != "" {
			return v
		}
		replies := o.ask(t, p.requests()...)
		if e := replies[0].Error; e != nil {
			// Viewers' terminals are of no use afterwards, so only what comes
			// before counts.
			v.failed = e.Message
			if limit = min(limit-1, p.seenBefore(e.Step)); limit <= 0 {
				return v
			}
			continue
		}
		v.difference = p.difference(t, replies)
		v.exempt, v.spared = p.exempt, p.spared
		if v.difference != "" && p.unsteady(t, o, replies[0]) {
			v.unsteady, v.difference = true, ""
		}
		return v
	}
}

// unsteady reports whether xterm.js shows something else when it gets the
// same output in one piece, or byte by byte: without automatic wrapping, half
// of a wide character in the last column may stay.
func (p *performance) unsteady(t testing.TB, o *oracle, reference reply) bool {
	t.Helper()
	for i := range len(p.cuts) + 1 {
		seen := p.seen
		if i < len(p.cuts) {
			seen = seen[:p.cuts[i].seen]
		}
		whole, bytewise := p.recut(seen)
		for _, r := range o.ask(t, whole, bytewise) {
			if r.Error != nil || !bytes.Equal(r.States[0], reference.States[i]) {
				return true
			}
		}
	}
	return false
}

// recut gives a terminal what viewers saw in as few and as many writes as
// possible.
func (p *performance) recut(seen []oracleStep) (whole, bytewise request) {
	whole = request{Cols: p.script.Cols, Rows: p.script.Rows, Scrollback: historyLimit}
	bytewise = whole
	var output []byte
	for _, s := range append(slices.Clip(seen), oracleStep{Snapshot: true}) {
		if s.Write != nil {
			output = append(output, s.Write...)
			continue
		}
		if len(output) > 0 {
			whole.Steps = append(whole.Steps, oracleStep{Write: output})
		}
		for _, b := range output {
			bytewise.Steps = append(bytewise.Steps, oracleStep{Write: []byte{b}})
		}
		whole.Steps = append(whole.Steps, s)
		bytewise.Steps = append(bytewise.Steps, s)
		output = nil
	}
	return whole, bytewise
}

// seenBefore is how many of p.seen come before step n of the oracle's first
// terminal.
func (p *performance) seenBefore(n int) int {
	for i, c := range p.cuts {
		if c.seen+i >= n {
			return n - i
		}
	}
	return n - len(p.cuts)
}

func (p *performance) difference(t testing.TB, replies []reply) string {
	t.Helper()
	if d := p.passedOn(replies[0].Answers); d != "" {
		return d
	}
	full := replies[0].States
	for i, c := range p.cuts {
		want := decodeState(t, full[i])
		if d := want.shownDifference(c.state); d != "" {
			return fmt.Sprintf("at %d, Screen: %s", c.position, d)
		}
		if d := p.lateDifference(t, &c, full[i], full[len(full)-1], replies[i+1]); d != "" {
			return fmt.Sprintf("a terminal that got a keyframe at %d%s\n  keyframe %+q", c.position, d, c.keyframe)
		}
	}
	if d := decodeState(t, full[len(full)-1]).shownDifference(p.end); d != "" {
		return fmt.Sprintf("at the end, Screen: %s", d)
	}
	return ""
}

// halved reports whether a wide character has lost its second column, to a
// smaller size or, without automatic wrapping, to the next character, or its
// first within the first two columns. No output does that reliably.
func (s *state) halved() bool {
	return slices.ContainsFunc(slices.Concat(s.Screen, s.Other, s.History), func(l line) bool {
		for x, c := range l.Cells {
			if c.Width == 2 && (x+1 == len(l.Cells) || l.Cells[x+1].Width != 0) {
				return true
			}
			if c.Width == 0 && c.Text == "" && c.look != (look{}) && x < 2 && (x == 0 || l.Cells[0].Width != 2) {
				return true
			}
		}
		return false
	})
}

// pending reports whether the alternate screen waits to wrap behind a cell that
// is empty in a row that isn't, or whose look can't be given to the pen without
// a saved cursor. To write such a cell again is the only way to that state.
func (s *state) pending() bool {
	l := s.Screen[s.Y]
	switch {
	case !s.Modes["alternate"] || s.X < s.Cols:
		return false
	case len(l.Cells) < s.Cols || l.Cells[s.X-1].Text == "" && l.Cells[s.X-1].Width > 0:
		return len(l.Cells) > 0
	}
	return (s.IrregularPen || !s.shifted()) && l.Cells[s.X-1].look != s.Pen
}

// shifted reports whether the character set in use is that of its level, not
// one restored with the cursor.
func (s *state) shifted() bool {
	var deep struct {
		Charsets []string
		Charset  string
		Shift    int
	}
	return json.Unmarshal(s.Deep, &deep) == nil && deep.Charset == deep.Charsets[deep.Shift]
}

// leftovers reports whether the last row has nothing but what wide characters
// left: to make the last cell of these takes the others or a further row.
func (s *state) leftovers() bool {
	for _, lines := range [][]line{s.Screen, s.Other} {
		if len(lines) == 0 {
			continue
		}
		l := lines[len(lines)-1]
		special := func(c cell) bool {
			return c.Text == "" && c.Width == 1 && c.look != (look{Bg: c.Bg})
		}
		if len(l.Cells) == s.Cols && !slices.ContainsFunc(l.Cells, func(c cell) bool { return !special(c) }) {
			return true
		}
	}
	return false
}

// joins reports whether what comes next may join the last character. No output
// can put the cursor before what there is to join, where a resize leaves it or,
// without automatic wrapping, a wide character that found no room.
func (s *state) joins() bool { return !bytes.Contains(s.Deep, []byte(`"join":""`)) }

// before is the character before the cursor. Its look is that of the pen if it
// was just printed, unless a screen of one row has scrolled it away meanwhile.
func (s *state) before() cell {
	for x := s.X - 1; x >= 0 && x < len(s.Screen[s.Y].Cells); x-- {
		if c := s.Screen[s.Y].Cells[x]; c.Width > 0 {
			return c
		}
	}
	return cell{look: s.Pen}
}

// lateDifference compares a terminal that got a keyframe with the one that saw
// all, right then and at the end.
func (p *performance) lateDifference(t testing.TB, c *cut, then, end json.RawMessage, late reply) string {
	t.Helper()
	if late.Error != nil {
		return fmt.Sprintf(" fails: %s", late.Error.Message)
	}
	if bytes.Equal(then, late.States[0]) && bytes.Equal(end, late.States[1]) {
		return ""
	}
	want, got := decodeState(t, then), decodeState(t, late.States[0])
	why := want.unreachable(c.moved)
	d := want.difference(got)
	if kept := min(len(want.History), len(c.state.History)); len(got.History) != kept {
		d = fmt.Sprintf("got %d lines of history, want %d", len(got.History), kept)
	}
	if d != "" && why == "" {
		return ", at once: " + d
	}
	last := decodeState(t, end)
	if later := last.difference(decodeState(t, late.States[1])); later != "" {
		if why == "" {
			why = p.untold(c, want, last)
		}
		if why == "" {
			return ", after the rest of the output: " + later
		}
		d = later
	}
	if d != "" {
		p.exempt = append(p.exempt, why)
	}
	return ""
}

// unreachable tells what of a state no output leads to, if anything.
func (s *state) unreachable(moved bool) string {
	switch {
	case s.halved():
		return "half of a wide character"
	case s.Misfit:
		return "text of another width"
	case s.leftovers():
		return "row of nothing but leftovers"
	case s.PenElsewhere:
		return "pen or charset of the other screen's saved cursor"
	case s.pending():
		return "pending wrap behind nothing to write"
	case s.joins() && moved:
		return "something to join after a resize"
	case s.joins() && !s.Modes["wraparound"] && s.X == s.Cols-1:
		return "something to join that had no room"
	case s.joins() && s.before().look != s.Pen:
		return "something to join of another look"
	}
	return ""
}

// untold tells what of the state then no output can tell another terminal,
// although it may show at the end, if anything.
func (p *performance) untold(c *cut, then, end *state) string {
	switch {
	case then.SavedOff:
		return "cursor saved elsewhere"
	case then.HiddenCells:
		return "hidden cells"
	case c.resized && then.StaleText:
		return "stale text"
	case c.resized && then.HiddenTabs && end.OddTabs:
		return "hidden tab stops"
	}
	return ""
}

// longRequest is a DECRQSS that's longer than what a Screen holds back.
var longRequest = regexp.MustCompile(`\x1bP\$q[^\x1b]{200}`)

// passedOn checks that viewers got no query that their terminals answer and,
// if the program asked nothing, all of its output.
func (p *performance) passedOn(answers []string) string {
	var got []byte
	for _, s := range p.seen {
		got = append(got, s.Write...)
	}
	if len(answers) > 0 && !longRequest.Match(got) {
		return fmt.Sprintf("viewers' terminals answer what should have been removed: %q", answers)
	}
	if !p.script.Plain {
		return ""
	}
	var want []byte
	for _, s := range p.script.Steps {
		want = append(want, s.Output...)
	}
	want = want[:min(p.output, len(want))]
	why, ok := passes(want, got)
	if p.spared = why; !ok {
		return fmt.Sprintf("viewers got %d of %d bytes\n   got %+q\n  want %+q", len(got), len(want), got, want)
	}
	return ""
}
