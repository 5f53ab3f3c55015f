package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The drawing of a chart is this large in its own units. It is stretched to the
// room there is; lines keep their width, and all text stands outside.
const (
	drawWidth  = 1000
	drawHeight = 300
)

// A chart is a plot as the page shows it.
type chart struct {
	ID      string // set by the page
	Title   string
	Caption string // what is shown, and how it was put together
	Summary string // the same in words, for those who do not see it
	X, Y    []tick
	Lines   []line
	Phases  []phaseBand
	Marks   []mark
	Table   grid // the numbers
}

// Drawn returns the lines in the order in which they are drawn: the first one,
// which the legend begins with, comes last and stands above the others.
func (c chart) Drawn() []line {
	lines := slices.Clone(c.Lines)
	slices.Reverse(lines)
	return lines
}

// A line is one curve of a chart.
type line struct {
	Label string
	Note  string // shown in the legend behind the label
	Class string // its colour
	Path  string // of the curve
	Dots  string // of the points that stand alone
	Band  string // of the area from the least to the most, "" if there is none
	Area  string // of the area below the curve, "" if it is not filled
}

// A phaseBand is a stretch of the time axis.
type phaseBand struct {
	Left, Width float64 // percent
	Class       string
	Title       string
}

// A mark is an event on the time axis.
type mark struct {
	At     float64 // percent
	Number string  // "3", "3–5", "" when an earlier one says it
	Title  string
}

// A grid is a table.
type grid struct {
	Head []string
	Rows [][]string
}

// colors is how many classes of lines the style sheet has: c1, c2, …
const colors = 8

// order of the colours: the faint one comes last.
var order = [colors]int{1, 2, 4, 5, 6, 7, 8, 3}

// class returns the class of the line with that index.
func class(i int) string { return "c" + strconv.Itoa(order[i%colors]) }

// A path builds the d attribute of a curve.
type path struct{ b strings.Builder }

func (p *path) move(x, y float64) { p.point('M', x, y) }
func (p *path) to(x, y float64)   { p.point('L', x, y) }
func (p *path) close()            { p.b.WriteByte('Z') }

func (p *path) point(op byte, x, y float64) {
	p.b.WriteByte(op)
	p.b.WriteString(strconv.FormatFloat(x*drawWidth, 'f', 1, 64))
	p.b.WriteByte(' ')
	// Nothing is drawn far outside.
	y = min(max(y, -0.1), 1.1)
	p.b.WriteString(strconv.FormatFloat((1-y)*drawHeight, 'f', 1, 64))
}

// curve draws one value of each column. Columns without neighbours are dots:
// strokes without length, whose round ends are seen.
func curve(runs [][]column, x, y scale, value func(column) float64) (line, dots string) {
	var along, alone path
	for _, run := range runs {
		p := &along
		if len(run) == 1 {
			p = &alone
		}
		for i, c := range run {
			if i == 0 {
				p.move(x.at(c.t), y.at(value(c)))
			}
			if i > 0 || len(run) == 1 {
				p.to(x.at(c.t), y.at(value(c)))
			}
		}
	}
	return along.b.String(), alone.b.String()
}

// area fills between two values of each column.
func area(runs [][]column, x, y scale, low, high func(column) float64) string {
	var p path
	for _, run := range runs {
		if len(run) < 2 {
			continue
		}
		p.move(x.at(run[0].t), y.at(high(run[0])))
		for _, c := range run[1:] {
			p.to(x.at(c.t), y.at(high(c)))
		}
		for i := len(run) - 1; i >= 0; i-- {
			p.to(x.at(run[i].t), y.at(low(run[i])))
		}
		p.close()
	}
	return p.b.String()
}

func lowOf(c column) float64  { return c.low }
func midOf(c column) float64  { return c.mid }
func highOf(c column) float64 { return c.high }
func zero(column) float64     { return 0 }

// covers says in words what one point of a line stands for.
func covers(width float64) string {
	if width <= 1 {
		return "One point a second."
	}
	return fmt.Sprintf("Each point covers %s: the line is the middle one of its seconds, the shade reaches from the least to the most.", elapsed(width))
}
