package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A scale maps values to places on an axis, 0 to 1.
type scale struct {
	low, high float64
	log       bool
}

func (s scale) at(v float64) float64 {
	if s.log {
		return (math.Log10(max(v, s.low)) - math.Log10(s.low)) / (math.Log10(s.high) - math.Log10(s.low))
	}
	return (v - s.low) / (s.high - s.low)
}

// A tick is a mark on an axis.
type tick struct {
	At    float64 // percent along the axis
	Label string
	Minor bool // its label may be left out where there is little room
}

// logScale holds values from low to high, both positive, and begins and ends at
// round numbers at least a decade apart.
func logScale(low, high float64) scale {
	low, high = floorRound(low), ceilRound(high)
	for high/low < 10 {
		low, high = floorRound(low*0.999), ceilRound(high*1.001)
	}
	return scale{low, high, true}
}

// The round numbers of a decade.
var rounds = []float64{1, 2, 5, 10}

// floorRound returns the largest 1, 2 or 5 times a power of ten up to v.
func floorRound(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	best := decade
	for _, r := range rounds {
		if r*decade <= v*(1+1e-9) {
			best = r * decade
		}
	}
	return best
}

// ceilRound returns the smallest 1, 2 or 5 times a power of ten from v on.
func ceilRound(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, r := range rounds {
		if r*decade >= v*(1-1e-9) {
			return r * decade
		}
	}
	return 10 * decade
}

// logTicks returns the ticks of a logarithmic scale: every decade, and 2 and 5
// between them when there are few.
func (s scale) logTicks(unit string) []tick {
	var ticks []tick
	decades := math.Log10(s.high / s.low)
	for decade := math.Pow(10, math.Floor(math.Log10(s.low)+1e-9)); decade <= s.high*(1+1e-9); decade *= 10 {
		for _, r := range rounds[:3] {
			v := r * decade
			if v < s.low*(1-1e-9) || v > s.high*(1+1e-9) || r > 1 && decades > 2.6 {
				continue
			}
			ticks = append(ticks, tick{At: 100 * s.at(v), Label: tickLabel(v, unit), Minor: r > 1})
		}
	}
	return ticks
}

// linearScale holds values from 0 to high and ends at a round number.
func linearScale(high float64, binary bool) (scale, float64) {
	if high <= 0 {
		high = 1
	}
	step := tickStep(high, binary)
	return scale{0, math.Ceil(high/step-1e-9) * step, false}, step
}

// tickStep returns the distance of four to five ticks up to high, round in tens
// or, for bytes, in powers of two.
func tickStep(high float64, binary bool) float64 {
	if binary && high >= 4 {
		return math.Pow(2, math.Ceil(math.Log2(high/5)))
	}
	return ceilRound(high / 5)
}

func (s scale) linearTicks(step float64, unit string) []tick {
	var ticks []tick
	for i := 0; ; i++ {
		v := float64(i) * step
		if v > s.high*(1+1e-9) {
			return ticks
		}
		ticks = append(ticks, tick{At: 100 * s.at(v), Label: tickLabel(v, unit)})
	}
}

// tickLabel formats a round number: without the zeros at its end that say how
// exact other numbers are.
func tickLabel(v float64, unit string) string {
	if v != 0 {
		// Computing with powers leaves a little too much or too little.
		last := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-8)
		v = math.Round(v/last) * last
	}
	figure, name, spaced := strings.Cut(format(v, unit), " ")
	if strings.Contains(figure, ".") && !strings.Contains(figure, "e") {
		figure = strings.TrimRight(strings.TrimRight(figure, "0"), ".")
	}
	if !spaced || v == 0 {
		return figure
	}
	return figure + " " + name
}

// The distances between marks on a time axis.
var timeTicks = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// timeScale is the axis of a run, in seconds after its start.
func timeScale(end float64) (scale, []tick) {
	end = max(end, 1)
	const most = 8
	day := timeTicks[len(timeTicks)-1].Seconds()
	step := day * math.Ceil(end/day/most)
	for _, t := range timeTicks {
		if end/t.Seconds() <= most {
			step = t.Seconds()
			break
		}
	}
	s := scale{0, end, false}
	var ticks []tick
	for i := 0; float64(i)*step <= end; i++ {
		v := float64(i) * step
		ticks = append(ticks, tick{At: 100 * s.at(v), Label: elapsed(v), Minor: i%2 == 1})
	}
	return s, ticks
}

// elapsed formats seconds after the start: "30 s", "2 min", "1 h 30 min".
func elapsed(v float64) string {
	d := time.Duration(v * float64(time.Second)).Round(time.Second)
	var parts []string
	for _, part := range []struct {
		n    int
		name string
	}{{int(d.Hours()), " h"}, {int(d.Minutes()) % 60, " min"}, {int(d.Seconds()) % 60, " s"}} {
		if part.n > 0 {
			parts = append(parts, strconv.Itoa(part.n)+part.name)
		}
	}
	return or(strings.Join(parts, " "), "0")
}
