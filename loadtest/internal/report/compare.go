package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// Compare writes how b differs from a: for each figure the ratio with its
// interval, and whether the difference is more than chance makes.
func Compare(w io.Writer, a, b *measure.Result, o TextOptions) error {
	p := &printer{color: o.Color}
	for _, side := range []struct {
		name string
		r    *measure.Result
	}{{"A", a}, {"B", b}} {
		i := side.r.Info
		p.line("%s  %s, %s, revision %s", p.paint(bold, side.name), clean(i.Scenario),
			i.Start.UTC().Format("2006-01-02 15:04:05 UTC"), clean(or(i.Revision, "unknown")))
	}
	for _, why := range incomparable(a, b) {
		p.line("%s", p.paint(amber, "note: "+why))
	}
	p.line("")
	var t table
	var ofA, ofB, ofRatio spreadColumn
	all := measure.Compare(a, b)
	for _, d := range all {
		ofA.add(d.SpreadA, d.RangeA)
		ofB.add(d.SpreadB, d.RangeB)
		ofRatio.add(d.RatioInterval, fewest(d))
	}
	t.row(faint, "", "A", ofA.heading(), "B", ofB.heading(), "B/A", ofRatio.heading(), "")
	for _, d := range all {
		if d.A == nil && d.B == nil {
			continue
		}
		t.row(outcomeColor(d.Outcome),
			clean(d.Name), optional(d.A, d.Unit), ofA.cell(between(d.SpreadA, d.Unit), d.RangeA),
			optional(d.B, d.Unit), ofB.cell(between(d.SpreadB, d.Unit), d.RangeB),
			ratio(d.Ratio), ofRatio.cell(ratioBetween(d.RatioInterval), fewest(d)), string(d.Outcome))
	}
	p.print(&t)
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// fewest returns how many blocks the side has that makes the interval of the
// ratio a range, 0 when neither does.
func fewest(d measure.Difference) int {
	if d.RangeA == 0 || d.RangeB == 0 {
		return max(d.RangeA, d.RangeB)
	}
	return min(d.RangeA, d.RangeB)
}

func outcomeColor(o measure.Outcome) string {
	switch o {
	case measure.Better:
		return green
	case measure.Worse:
		return red
	case measure.Changed, measure.Unclear:
		return amber
	}
	return ""
}

// incomparable says what makes a difference between the runs mean less.
func incomparable(a, b *measure.Result) []string {
	var why []string
	if a.Info.Scenario != b.Info.Scenario {
		why = append(why, "these are different scenarios")
	}
	ma, mb := a.Info.Machine, b.Info.Machine
	if ma.Model != mb.Model || ma.Cores != mb.Cores || ma.Kernel != mb.Kernel {
		why = append(why, "the machines differ")
	}
	other := make(map[string]string)
	for _, p := range b.Info.Parameters {
		other[p.Name] = p.Value
	}
	for _, p := range a.Info.Parameters {
		if v, ok := other[p.Name]; !ok || v != p.Value {
			why = append(why, fmt.Sprintf("%s differs: %s and %s", clean(p.Name), clean(or(p.Value, "none")), clean(or(v, "none"))))
		}
	}
	for _, side := range []struct {
		name string
		r    *measure.Result
	}{{"A", a}, {"B", b}} {
		name, r := side.name, side.r
		if r.ClockError > 0 && slices.ContainsFunc(r.Figures, func(f measure.Figure) bool { return f.CrossesClocks }) {
			why = append(why, fmt.Sprintf("the clocks of %s are known to agree within ± %s", name, format(r.ClockError, "s")))
		}
		if len(r.Generator.Why) > 0 {
			why = append(why, "the generator of "+name+" was saturated")
		}
	}
	return why
}

// or returns text, or other when it is empty.
func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
