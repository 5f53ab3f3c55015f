package grid

import (
	"maps"
	"reflect"
	"slices"
)

const (
	minCols, minRows = 2, 1 // xterm.js has no terminal of one column
	MaxSide          = 1000 // of a grid, in columns or rows
)

// A Grid is what a terminal shows, and what decides where and how the next
// character is shown. It is not safe for concurrent use.
type Grid struct {
	buffers          // static after construction
	Buf      *Buffer // the one that is shown
	Pen      Pen
	PenCell  Cell // an empty cell of the pen
	Modes    Modes
	Charsets Charsets
	Title    string
	Colors   Colors

	// What cells refer to by number.
	Links    LinkTable
	Exts     ExtTable
	Clusters ClusterTable

	Join  Joint // of the character before
	InRun bool  // the byte before was printed

	reading
	newRows int         // rows above the screen in what AppendNewText returned last
	places  []TextPlace // room for MaskAsIn
}

// New returns an empty grid. Its sides are clamped.
func New(cols, rows int) *Grid {
	cols, rows = clampSize(cols, rows)
	g := &Grid{
		buffers: buffers{Normal: newBuffer(cols, rows, viewerScrollback), Alt: newBuffer(cols, rows, 0)},
		Modes:   InitialModes,
	}
	g.Normal.fillRows(Cell{})
	g.Buf = g.Normal
	return g
}

// Size returns the size in cells.
func (g *Grid) Size() (cols, rows int) { return g.Buf.Cols, g.Buf.Rows }

// Resize changes the size as xterm.js does: rows of the normal screen that
// wrapped flow again, those of the alternate screen don't.
func (g *Grid) Resize(cols, rows int) {
	g.InRun = false // what comes next is another write
	if c, r := g.Size(); c == cols && r == rows {
		return
	}
	g.Tangle()
	cols, rows = clampSize(cols, rows)
	g.Normal.resize(cols, rows)
	g.Alt.resize(cols, rows)
	for _, b := range []*Buffer{g.Normal, g.Alt} {
		from := cols
		if !b.Tabs.Has(cols) {
			from = b.Tabs.previous(cols, cols)
		}
		b.Tabs.Fill(from, cols)
	}
}

func clampSize(cols, rows int) (c, r int) {
	return min(max(cols, minCols), MaxSide), min(max(rows, minRows), MaxSide)
}

// Clone returns a grid of its own that is equal to g.
func (g *Grid) Clone() *Grid {
	c := *g
	c.Normal, c.Alt = g.Normal.clone(), g.Alt.clone()
	c.Buf = c.Normal
	if g.Buf == g.Alt {
		c.Buf = c.Alt
	}
	c.Links.List, c.Links.free = slices.Clone(g.Links.List), slices.Clone(g.Links.free)
	c.Links.number = maps.Clone(g.Links.number)
	c.Exts.List, c.Exts.free = slices.Clone(g.Exts.List), slices.Clone(g.Exts.free)
	c.Exts.number = maps.Clone(g.Exts.number)
	c.Clusters.Text, c.Clusters.free = slices.Clone(g.Clusters.Text), slices.Clone(g.Clusters.free)
	c.Clusters.number, c.Clusters.scratch = maps.Clone(g.Clusters.number), nil
	c.places = nil
	return &c
}

// Same reports whether what two grids show and do next is the same.
func (g *Grid) Same(other *Grid) bool {
	return (g.Buf == g.Alt) == (other.Buf == other.Alt) && g.Normal.same(other.Normal) && g.Alt.same(other.Alt) &&
		reflect.DeepEqual(g.bare(), other.bare())
}

// bare returns g without its rows, what was noted for who looks at its text, and
// room that is used again.
func (g *Grid) bare() Grid {
	c := *g
	c.Normal, c.Alt, c.Buf, c.places, c.Clusters.scratch = nil, nil, nil, nil, nil
	c.reading, c.newRows = reading{}, 0
	return c
}

// UsePen makes the pen that of the next characters.
func (g *Grid) UsePen() {
	p := &g.Pen
	g.PenCell = Cell{Fg: p.Fg, Bg: p.Bg &^ FlagExtended}
	if p.Bg&FlagExtended != 0 {
		g.PenCell.Ext = g.Exts.intern(Ext{Underline: p.Underline, Color: p.Color, Link: p.Link}, g.PenCell.Ext, &g.buffers)
	}
}

// OpenLink makes the next characters part of a hyperlink, of none if l is empty.
func (g *Grid) OpenLink(l Link) {
	g.Pen.Link = 0
	if l.URI != "" {
		if g.Links.wantsSweep(l) {
			g.Exts.sweep(g.PenCell.Ext, &g.buffers)
			g.Links.sweep(&g.Exts, g.Pen.Link)
		}
		g.Pen.Link = g.Links.add(l)
	}
	g.Pen.Extend()
	g.UsePen()
}
