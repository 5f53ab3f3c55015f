// Package report tells people what a load test found out: on a terminal while
// it runs and at its end, as one HTML file to show to others, as JSON, and as a
// comparison of two runs.
package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// none stands where there is no value.
const none = "–"

// A step is a unit that numbers are shown in.
type step struct {
	size float64
	name string
}

// The units of times and sizes, largest first.
var (
	timeSteps = []step{{3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}}
	byteSteps = []step{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}}
)

// format returns a number with its unit, to three digits.
func format(v float64, unit string) string {
	switch unit {
	case "s":
		return scaled(v, timeSteps, "")
	case "B":
		return scaled(v, byteSteps, "")
	case "B/s":
		return scaled(v, byteSteps, "/s")
	case "%":
		return number(v) + " %"
	case "":
		return number(v)
	}
	if per, ok := strings.CutPrefix(unit, "1/"); ok {
		return number(v) + "/" + per
	}
	return number(v) + " " + unit
}

// scaled returns v in the largest unit of which there is at least one.
func scaled(v float64, steps []step, suffix string) string {
	if v == 0 {
		// Nothing is nothing in every unit; the plain one is read best.
		for _, s := range steps {
			if s.size == 1 {
				return "0 " + s.name + suffix
			}
		}
	}
	for _, s := range steps {
		// A number that would be rounded up to the next unit is shown in it.
		if math.Abs(v) >= s.size*0.9995 {
			return number(v/s.size) + " " + s.name + suffix
		}
	}
	last := steps[len(steps)-1]
	return number(v/last.size) + " " + last.name + suffix
}

// number returns v to three digits, all of those before the point.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return none
	case v == 0:
		return "0"
	case a >= 1e15 || a < 0.001:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 99.95:
		return grouped(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	}
	places := 1
	if a < 0.0999 {
		places = 4
	} else if a < 0.9995 {
		places = 3
	} else if a < 9.995 {
		places = 2
	}
	text := strconv.FormatFloat(v, 'f', places, 64)
	if v == math.Trunc(v) {
		text, _, _ = strings.Cut(text, ".")
	}
	return text
}

// grouped puts a comma before every third digit from the end.
func grouped(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// optional formats a value that may be missing.
func optional(v *float64, unit string) string {
	if v == nil {
		return none
	}
	return format(*v, unit)
}

// ratio formats a multiple.
func ratio(v *float64) string {
	if v == nil {
		return none
	}
	return number(*v) + "×"
}

// byClock formats by how much a figure may be wrong because it crosses clocks, ""
// when it can't be.
func byClock(r *measure.Result, f *measure.Figure) string {
	below, above := r.ByClock(f)
	switch most := max(below, above); {
	case most == 0:
		return ""
	case math.IsInf(most, 0):
		return "± ∞"
	default:
		return "± " + format(most, f.Unit)
	}
}

// saidByClock is byClock with what it is by, to stand behind a figure.
func saidByClock(r *measure.Result, f *measure.Figure) string {
	if text := byClock(r, f); text != "" {
		return " " + text + " by the clock"
	}
	return ""
}

// between formats an interval, "" when it is not known.
func between(i *measure.Interval, unit string) string {
	if i == nil {
		return ""
	}
	low, high := format(i.Low, unit), format(i.High, unit)
	// The unit is said once where both have it.
	if number, name, ok := strings.Cut(low, " "); ok && strings.HasSuffix(high, " "+name) {
		low = number
	}
	return low + " … " + high
}

// ratioBetween formats the interval of a multiple.
func ratioBetween(i *measure.Interval) string {
	if i == nil {
		return ""
	}
	return number(i.Low) + " … " + number(i.High)
}

// ranged says of a formatted interval of how many blocks it is the range, if it
// is (0: it isn't).
func ranged(text string, blocks int) string {
	if blocks == 0 || text == "" {
		return text
	}
	return rangeWord(blocks) + ": " + text
}

func rangeWord(blocks int) string { return fmt.Sprintf("range of %d blocks", blocks) }

// A spreadColumn is a column of intervals. A few blocks have only their range:
// the heading says so when that is all there is, else each cell.
type spreadColumn struct {
	intervals bool
	ranges    map[int]bool // of so many blocks
}

// add says that there will be a cell with an interval that is the range of so
// many blocks (0: it isn't).
func (c *spreadColumn) add(i *measure.Interval, blocks int) {
	switch {
	case i == nil:
	case blocks == 0:
		c.intervals = true
	default:
		if c.ranges == nil {
			c.ranges = make(map[int]bool)
		}
		c.ranges[blocks] = true
	}
}

// uniform returns of how many blocks every cell is the range, 0 if that can't be
// said.
func (c *spreadColumn) uniform() int {
	if !c.intervals && len(c.ranges) == 1 {
		for blocks := range c.ranges {
			return blocks
		}
	}
	return 0
}

// heading returns what stands above the column.
func (c *spreadColumn) heading() string {
	if n := c.uniform(); n > 0 {
		return rangeWord(n)
	}
	return "95 % interval"
}

// cell returns a formatted interval as it stands in the column.
func (c *spreadColumn) cell(text string, blocks int) string {
	if blocks == c.uniform() {
		return text
	}
	return ranged(text, blocks)
}
