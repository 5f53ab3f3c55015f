package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// blocks is how many interleaved A/B blocks are measured; when the interval
// straddles the bound, more are, up to maxBlocks (DESIGN §11).
const (
	blocks    = 9
	maxBlocks = 30
)

// A figure is the ratio of two measurements over interleaved blocks, or one
// measurement in a unit.
type figure struct {
	name    string
	bound   float64
	atLeast bool      // the bound is the least that is wanted, not the most
	unit    string    // empty: a ratio
	ratios  []float64 // one per block
}

// verdict says how a figure stands against its bound.
type verdict struct {
	median, low, high float64 // of the ratio, with its 95 % interval
}

func (f *figure) add(ratio float64) { f.ratios = append(f.ratios, ratio) }

// evaluate returns the median ratio and a bootstrap interval of it.
func (f *figure) evaluate() verdict {
	rng := rand.New(rand.NewPCG(1, uint64(len(f.ratios))))
	const resamples = 2000
	medians := make([]float64, resamples)
	sample := make([]float64, len(f.ratios))
	for i := range medians {
		for j := range sample {
			sample[j] = f.ratios[rng.IntN(len(f.ratios))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	return verdict{median(f.ratios), medians[resamples*25/1000], medians[resamples*975/1000]}
}

// decided reports whether the interval lies on one side of the bound.
func (f *figure) decided() bool {
	v := f.evaluate()
	return f.met(v) || v.low > f.bound || f.atLeast && v.high < f.bound
}

func (f *figure) met(v verdict) bool {
	if f.atLeast {
		return v.low >= f.bound
	}
	return v.high <= f.bound
}

func (f *figure) String() string {
	v := f.evaluate()
	result := "missed"
	if f.met(v) {
		result = "met"
	}
	unit, sign := "ratio", "≤"
	if f.unit != "" {
		unit = f.unit
	}
	if f.atLeast {
		sign = "≥"
	}
	return fmt.Sprintf("%-32s %s %.2f [%.2f, %.2f], wanted %s %.2f: %s (%d blocks)",
		f.name, unit, v.median, v.low, v.high, sign, f.bound, result, len(f.ratios))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// percentile returns the p-th percentile of d, which it sorts.
func percentile(d []time.Duration, p float64) time.Duration {
	slices.Sort(d)
	return d[min(int(p/100*float64(len(d))), len(d)-1)]
}
