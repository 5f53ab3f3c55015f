package report

import (
	"math"
	"slices"
	"sort"
)

// maxColumns is how many points a line has at most: what lies closer together
// than a pixel cannot be seen.
const maxColumns = 240

// A sample is one value at a time, in seconds after the start.
type sample struct{ t, v float64 }

// A column is what the samples of one stretch of time come to.
type column struct {
	t              float64 // its middle
	low, mid, high float64
}

// columnWidth returns the seconds of each column for a run of that length.
func columnWidth(end float64) float64 {
	for _, t := range timeTicks {
		if end/t.Seconds() <= maxColumns {
			return t.Seconds()
		}
	}
	return math.Ceil(end / maxColumns)
}

// columns puts samples together: the median, the least and the most of each
// stretch of width seconds. Runs of columns are returned apart where gap or more
// of them are empty, so that a line is not drawn where nothing was measured.
func columns(samples []sample, width float64, gap int) [][]column {
	samples = slices.Clone(samples)
	sort.SliceStable(samples, func(i, j int) bool { return samples[i].t < samples[j].t })
	var runs [][]column
	var run []column
	last := math.Inf(-1)
	for len(samples) > 0 {
		at := math.Floor(samples[0].t / width)
		n := 1
		for n < len(samples) && math.Floor(samples[n].t/width) == at {
			n++
		}
		values := make([]float64, n)
		for i, s := range samples[:n] {
			values[i] = s.v
		}
		slices.Sort(values)
		if at > last+float64(gap)+0.5 && run != nil {
			runs, run = append(runs, run), nil
		}
		run = append(run, column{(at + 0.5) * width, values[0], values[n/2], values[n-1]})
		last, samples = at, samples[n:]
	}
	if run != nil {
		runs = append(runs, run)
	}
	return runs
}

// flatten returns the columns of all runs.
func flatten(runs [][]column) []column {
	var all []column
	for _, r := range runs {
		all = append(all, r...)
	}
	return all
}
