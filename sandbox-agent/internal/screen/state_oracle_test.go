package screen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// A state is what can be known of a terminal.
type state struct {
	Cols    int             `json:"cols"`
	Rows    int             `json:"rows"`
	X       int             `json:"x"` // Cols when the next character wraps
	Y       int             `json:"y"`
	Title   string          `json:"title"`
	Mouse   string          `json:"mouse"`
	Modes   map[string]bool `json:"modes"`
	Screen  []line          `json:"screen"`
	History []line          `json:"history"` // oldest first
	Other   []line          `json:"other"`   // the normal screen behind the alternate one
	Pen     look            `json:"pen"`
	Deep    json.RawMessage `json:"deep"` // what shows only later; see oracle/oracle.mjs

	// Of an alternate screen that became smaller: cells beyond the last column.
	HiddenCells bool `json:"hiddenCells"`
	// A cursor was saved below the screen, or above rows that take a saved
	// cursor to write them.
	SavedOff bool `json:"savedOff"`
	// The pen is one that only restoring a cursor makes; it or the character set
	// in use is from the cursor of the other screen.
	IrregularPen bool `json:"irregularPen"`
	PenElsewhere bool `json:"penElsewhere"`
	// A cell has a text that can't be printed with its width.
	Misfit bool `json:"misfit"`
	// Texts that no cell holds were left where none can be printed.
	StaleText bool `json:"staleText"`
	// A larger size may show the tab stops beyond the last column, and gets new
	// ones after them.
	HiddenTabs bool `json:"hiddenTabs"`
	OddTabs    bool `json:"oddTabs"` // others than every eight columns
}

// A line has no empty cells at its end.
type line struct {
	Wrapped bool
	Cells   []cell
}

type cell struct {
	Text  string // empty: never written
	Width int
	look
}

// A look's Fg and Bg are a mode (0 default, 1 of 16, 2 of 256, 3 RGB) << 24
// and a value; its flags are those of oracle/oracle.mjs.
type look struct {
	Fg, Bg int
	Flags  int
	Style  string // an underline's style and colour
	Link   string // a hyperlink's address
	LinkID string
}

// lostLink is the address of a hyperlink that xterm.js has forgotten.
const lostLink = "\x00"

var emptyCell = cell{Width: 1}

// Bits of a cell's flags: what package screen reports, and what only keyframes
// show.
const (
	flagUnderline = 8
	flagProtected = 512
)

// UnmarshalJSON reads the runs that the oracle writes.
func (l *line) UnmarshalJSON(data []byte) error {
	var raw struct {
		Missing bool              `json:"missing"`
		W       bool              `json:"w"`
		T       string            `json:"t"`
		S       [][2]any          `json:"s"`
		A       []json.RawMessage `json:"a"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	if raw.Missing {
		*l = line{Cells: []cell{{Text: "missing"}}}
		return nil
	}
	*l = line{Wrapped: raw.W, Cells: make([]cell, 0, utf8.RuneCountInString(raw.T))}
	for _, r := range raw.T {
		c := emptyCell
		switch {
		case r == 0:
		case r == 1:
			text, _ := raw.S[0][0].(string)
			width, _ := raw.S[0][1].(float64)
			c.Text, c.Width = text, int(width)
			raw.S = raw.S[1:]
		default:
			c.Text = string(r)
		}
		l.Cells = append(l.Cells, c)
	}
	if err := l.colour(raw.A); err != nil {
		return err
	}
	l.trim()
	return nil
}

// UnmarshalJSON reads colours, flags and the rest as text.
func (l *look) UnmarshalJSON(data []byte) error {
	var extended string
	if err := json.Unmarshal(data, &[]any{&l.Fg, &l.Bg, &l.Flags, &extended}); err != nil {
		return err
	}
	if f := strings.SplitN(extended, " ", 4); len(f) == 4 {
		l.Style, l.LinkID, l.Link = f[0]+" "+f[1], f[2], f[3]
	}
	if l.Flags&flagUnderline != 0 && l.Style == "" {
		l.Style = "1 0" // what it's drawn as
	}
	return nil
}

// colour applies runs of cells that look alike.
func (l *line) colour(runs []json.RawMessage) error {
	x := 0
	for _, data := range runs {
		var count int
		var like look
		if err := json.Unmarshal(data, &[]any{&count, &like}); err != nil {
			return err
		}
		for range count {
			if x == len(l.Cells) {
				l.Cells = append(l.Cells, emptyCell)
			}
			l.Cells[x].look = like
			x++
		}
	}
	return nil
}

// trim drops the empty cells at the end.
func (l *line) trim() {
	for len(l.Cells) > 0 && l.Cells[len(l.Cells)-1] == emptyCell {
		l.Cells = l.Cells[:len(l.Cells)-1]
	}
}

// shown is what Screen reports of a cell.
func (c cell) shown() cell {
	c.Flags &= flagProtected - 1
	if c.Link != "" || c.Style != "" && c.Style[0] != '0' {
		c.Flags |= flagUnderline // as xterm.js draws it
	}
	c.Style, c.LinkID = "", ""
	return c
}

func (l line) shown() line {
	cells := make([]cell, len(l.Cells))
	for i, c := range l.Cells {
		cells[i] = c.shown()
	}
	l.Cells = cells
	l.trim()
	return l
}

func (l line) equal(m line) bool {
	return l.Wrapped == m.Wrapped && slices.EqualFunc(l.Cells, m.Cells, cell.equal)
}

// drawn is the line without what can't be seen: empty second halves whose
// first is gone become empty cells, others look like the first.
func (l line) drawn() line {
	cells := slices.Clone(l.Cells)
	for x := range cells {
		switch {
		case cells[x].Text != "" || cells[x].Width != 0:
		case x > 0 && cells[x-1].Width == 2:
			cells[x].look = cells[x-1].look
		default:
			cells[x].Width = 1
		}
	}
	l.Cells = cells
	l.trim()
	return l
}

func (c cell) equal(d cell) bool {
	return c.Text == d.Text && c.Width == d.Width && c.look.equal(d.look)
}

// equal takes a hyperlink that xterm.js has forgotten for any.
func (l look) equal(m look) bool {
	if l.Link == lostLink || m.Link == lostLink {
		l.Link, l.LinkID, m.Link, m.LinkID = "", "", "", ""
		if l.Style == "" {
			l.Style = "0 0"
		}
		if m.Style == "" {
			m.Style = "0 0"
		}
	}
	return l == m
}

// text is the line without its blanks at the end.
func (l line) text() string {
	var b strings.Builder
	for x := 0; x < len(l.Cells); x += max(l.Cells[x].Width, 1) {
		if l.Cells[x].Text == "" {
			b.WriteByte(' ')
		}
		b.WriteString(l.Cells[x].Text)
	}
	return strings.TrimRight(b.String(), " ")
}

func decodeState(t testing.TB, data json.RawMessage) *state {
	t.Helper()
	s := new(state)
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatalf("a state that can't be read: %v", err)
	}
	return s
}

// difference tells how got differs from s, both of xterm.js, or is empty.
// Of two histories, the newest lines that both have count.
func (s *state) difference(got *state) string {
	for _, t := range []*state{s, got} {
		for _, lines := range [][]line{t.Screen, t.Other, t.History} {
			for i, l := range lines {
				lines[i] = l.drawn()
			}
		}
	}
	if d := s.outward(got); d != "" {
		return d
	}
	if d := differentLines("normal screen behind", s.Other, got.Other); d != "" {
		return d
	}
	n := min(len(s.History), len(got.History))
	if d := differentLines("history", s.History[len(s.History)-n:], got.History[len(got.History)-n:]); d != "" {
		return d
	}
	if !s.Pen.equal(got.Pen) {
		return fmt.Sprintf("pen: got%v, want%v", got.Pen, s.Pen)
	}
	if !bytes.Equal(s.Deep, got.Deep) {
		return fmt.Sprintf("hidden state\n   got %s\n  want %s", got.Deep, s.Deep)
	}
	return ""
}

// shownDifference tells how got, which Screen reports, differs from s, or is
// empty.
func (s *state) shownDifference(got *state) string {
	shown := *s
	shown.Screen = make([]line, len(s.Screen))
	for i, l := range s.Screen {
		shown.Screen[i] = l.shown()
	}
	if d := shown.outward(got); d != "" {
		return d
	}
	n := min(len(s.History), len(got.History))
	for i := 1; i <= n; i++ {
		w, g := s.History[len(s.History)-i].text(), got.History[len(got.History)-i].text()
		if w != g {
			return fmt.Sprintf("history, %d lines back\n   got %q\n  want %q", i, g, w)
		}
	}
	return ""
}

// outward compares what both kinds of state have.
func (s *state) outward(got *state) string {
	switch {
	case s.Cols != got.Cols || s.Rows != got.Rows:
		return fmt.Sprintf("size: got %dx%d, want %dx%d", got.Cols, got.Rows, s.Cols, s.Rows)
	case s.Modes["alternate"] != got.Modes["alternate"]:
		return fmt.Sprintf("alternate screen: got %t, want %t", got.Modes["alternate"], s.Modes["alternate"])
	}
	if d := differentLines("screen", s.Screen, got.Screen); d != "" {
		return d
	}
	switch {
	case s.X != got.X || s.Y != got.Y:
		return fmt.Sprintf("cursor: got column %d row %d, want column %d row %d", got.X, got.Y, s.X, s.Y)
	case s.Title != got.Title:
		return fmt.Sprintf("title: got %q, want %q", got.Title, s.Title)
	case s.Mouse != got.Mouse:
		return fmt.Sprintf("mouse mode: got %q, want %q", got.Mouse, s.Mouse)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Modes)) {
		if value, ok := got.Modes[name]; !ok || value != s.Modes[name] {
			return fmt.Sprintf("mode %s: got %t (reported: %t), want %t", name, value, ok, s.Modes[name])
		}
	}
	return ""
}

// differentLines describes the first line that differs.
func differentLines(where string, want, got []line) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%s: got %d lines, want %d", where, len(got), len(want))
	}
	for y := range want {
		if want[y].equal(got[y]) {
			continue
		}
		return fmt.Sprintf("%s, row %d: %s\n   got %s\n  want %s", where, y, differentCell(want[y], got[y]), quoteLine(got[y]), quoteLine(want[y]))
	}
	return ""
}

func differentCell(want, got line) string {
	if want.Wrapped != got.Wrapped {
		return fmt.Sprintf("got wrapped %t, want %t", got.Wrapped, want.Wrapped)
	}
	for x := range max(len(want.Cells), len(got.Cells)) {
		w, g := emptyCell, emptyCell
		if x < len(want.Cells) {
			w = want.Cells[x]
		}
		if x < len(got.Cells) {
			g = got.Cells[x]
		}
		if !w.equal(g) {
			return fmt.Sprintf("column %d: got %v, want %v", x, g, w)
		}
	}
	return "equal"
}

func (c cell) String() string { return fmt.Sprintf("%q width %d%v", c.Text, c.Width, c.look) }

func (l look) String() string {
	var text string
	if l.Fg != 0 || l.Bg != 0 {
		text += fmt.Sprintf(" fg %#x bg %#x", l.Fg, l.Bg)
	}
	if l.Flags != 0 {
		text += fmt.Sprintf(" flags %#x", l.Flags)
	}
	if l.Style != "" || l.Link != "" {
		text += fmt.Sprintf(" underline %q link %q %q", l.Style, l.LinkID, l.Link)
	}
	return text
}

// quoteLine shows empty cells as a middle dot.
func quoteLine(l line) string {
	var b strings.Builder
	for _, c := range l.Cells {
		switch {
		case c.Text != "":
			b.WriteString(c.Text)
		case c.Width > 0:
			b.WriteString("·")
		}
	}
	text := strconv.Quote(b.String())
	if l.Wrapped {
		text += " (continues the row above)"
	}
	return text
}
