package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// JSON writes the result so that [measure.Decode] can read it.
func JSON(w io.Writer, r *measure.Result) error { return r.Encode(w) }

// TextOptions are how a result is shown on a terminal.
type TextOptions struct {
	Color bool     // see [Color]
	Files []string // where else the report is, named at the end
}

// Text writes the end of a run as it is shown on a terminal: the headline
// figures with their spread, what they are compared to, and the verdict.
func Text(w io.Writer, r *measure.Result, o TextOptions) error {
	p := &printer{color: o.Color}
	p.line("")
	p.line("%s  %s", p.paint(bold, clean(r.Info.Scenario)), clean(r.Info.Summary))
	if d := r.Info.End.Sub(r.Info.Start); d > 0 {
		p.line("%s, %s", elapsed(d.Seconds()), clean(r.Info.Target))
	}
	p.line("")
	p.figures(r)
	p.failures(r)
	p.generator(r)
	for _, n := range r.Notes {
		p.line("note: %s", clean(n))
	}
	p.verdict(r)
	for _, f := range o.Files {
		p.line("report: %s", f)
	}
	_, err := io.WriteString(w, p.b.String())
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Escape sequences of a terminal.
const (
	bold  = "1"
	red   = "31"
	green = "32"
	amber = "33"
	faint = "2"
)

// A printer builds text for a terminal.
type printer struct {
	b     strings.Builder
	color bool
}

func (p *printer) line(text string, args ...any) { fmt.Fprintf(&p.b, text+"\n", args...) }

// paint returns text in a colour if there are any.
func (p *printer) paint(color, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// A table is text in columns, the first of them flush left.
type table struct {
	rows  [][]string
	paint []string // a colour for each row
}

func (t *table) row(color string, cells ...string) {
	t.rows = append(t.rows, cells)
	t.paint = append(t.paint, color)
}

// print prints the table without columns that are empty below their heading.
func (p *printer) print(t *table) {
	if len(t.rows) == 0 {
		return
	}
	widths := make([]int, len(t.rows[0]))
	for i, row := range t.rows {
		for c, cell := range row {
			if i > 0 && cell != "" {
				widths[c] = max(widths[c], utf8.RuneCountInString(cell), utf8.RuneCountInString(t.rows[0][c]))
			}
		}
	}
	for i, row := range t.rows {
		var b strings.Builder
		for c, cell := range row {
			if widths[c] == 0 {
				continue
			}
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell))
			if c == 0 {
				b.WriteString("  " + cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		p.line("%s", p.paint(t.paint[i], strings.TrimRight(b.String(), " ")))
	}
}

// figures prints the headline figures, or all when there is no headline.
func (p *printer) figures(r *measure.Result) {
	var t table
	var own, ratios spreadColumn
	for _, f := range headlines(r) {
		own.add(f.Interval, f.Ranges())
		if q := r.Figure(f.Ratio); q != nil {
			ratios.add(q.Interval, q.Ranges())
		}
	}
	t.row(faint, "", "all samples", "by the clock", "median of blocks", own.heading(), "baseline", "ratio", ratios.heading())
	for _, f := range headlines(r) {
		t.row("", f.row(r, &own, &ratios)...)
	}
	p.print(&t)
	p.line("")
}

// shown is a figure that has a row of its own; its ratio stands in the same row.
type shown struct{ *measure.Figure }

// headlines returns the figures shown at the top: those that are declared so,
// and what must be 0.
func headlines(r *measure.Result) []shown {
	var top, all []shown
	for i := range r.Figures {
		f := &r.Figures[i]
		if strings.HasSuffix(f.Name, "_ratio") && r.Figure(strings.TrimSuffix(f.Name, "_ratio")) != nil {
			continue
		}
		all = append(all, shown{f})
		if f.Headline || f.MustBeZero {
			top = append(top, shown{f})
		}
	}
	if len(top) == 0 {
		return all
	}
	return top
}

// row returns the cells of a figure, of which two are intervals: its own and its
// ratio's.
func (f shown) row(r *measure.Result, own, ratios *spreadColumn) []string {
	cells := []string{f.Name, optional(f.Value, f.Unit), byClock(r, f.Figure), "", "", "", "", ""}
	if f.Median != nil {
		cells[3] = format(*f.Median, f.Unit)
	}
	cells[4] = own.cell(between(f.Interval, f.Unit), f.Ranges())
	if base := r.Figure(f.Baseline); base != nil {
		cells[5] = optional(base.Typical(), base.Unit)
	}
	if q := r.Figure(f.Ratio); q != nil {
		cells[6] = strings.TrimSpace(ratio(q.Value) + " " + byClock(r, q))
		cells[7] = ratios.cell(ratioBetween(q.Interval), q.Ranges())
	}
	return cells
}

// failures prints what failed, the most frequent first.
func (p *printer) failures(r *measure.Result) {
	if len(r.Failures) == 0 {
		return
	}
	p.line("  failures")
	for _, f := range r.Failures {
		p.line("  %10s  %s", number(float64(f.Count)), clean(f.Reason))
		for _, s := range f.Samples[:min(len(f.Samples), 1)] {
			p.line("  %10s  %s", "", p.paint(faint, clean(s)))
		}
	}
	p.line("")
}

// generator prints whether the load was made as it should have been.
func (p *printer) generator(r *measure.Result) {
	g := r.Generator
	if g.Processes > 0 || g.LagP99 != nil {
		noun := "processes"
		if g.Processes == 1 {
			noun = "process"
		}
		p.line("  generator: %d %s, %s %% of their cores at most, lag p99 %s",
			g.Processes, noun, number(g.CPU*100), optional(g.LagP99, "s"))
	}
	for _, why := range g.Why {
		p.line("  %s", p.paint(red, "saturated: "+clean(why)))
	}
	if len(g.Why) > 0 {
		p.line("  %s", p.paint(red, "the figures may be the generator's own, not those of what it measured"))
	}
	p.line("")
}

// verdict prints each bound and what all of them come to.
func (p *printer) verdict(r *measure.Result) {
	var t table
	t.row("", "bound", "measured", "")
	for _, v := range r.Verdicts {
		measured := optional(v.Value, "")
		if f := r.Figure(v.Metric); f != nil {
			measured = optional(v.Value, f.Unit) + saidByClock(r, f)
		}
		color, word := judged(v)
		t.row(color, clean(v.Bound), measured, word)
	}
	if len(r.Verdicts) > 0 {
		p.print(&t)
		p.line("")
	}
	ok, why := r.OK()
	if ok {
		p.line("%s", p.paint(green, "PASS"))
		return
	}
	if r.OnlyByClock() {
		p.line("%s  %s", p.paint(amber, "UNDECIDED BY CLOCK"), clean(strings.Join(why, "; ")))
		return
	}
	p.line("%s  %s", p.paint(red, "FAIL"), clean(strings.Join(why, "; ")))
}

// judged returns a verdict's colour and what it is called.
func judged(v measure.Verdict) (color, word string) {
	switch {
	case v.OK:
		return green, "holds"
	case v.Undecided:
		return amber, "undecided: " + clean(v.Why)
	case v.ByClock:
		return amber, "undecided by clock: " + clean(v.Why)
	}
	return red, "broken: " + clean(v.Why)
}

// clean returns text without what could move a terminal's cursor.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
