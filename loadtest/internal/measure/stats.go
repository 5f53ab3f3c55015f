package measure

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// resamples of a bootstrap.
	resamples = 2000
	// confidence of every interval.
	confidence = 0.95
	// minBlocks is how many blocks a spread takes: what fewer say of it means
	// nothing.
	minBlocks = 3
	// confidentBlocks is how many blocks an interval with that confidence takes:
	// even the whole range of n values misses their median with a chance of
	// 2^(1-n), which is 6 % for five of them and 3 % for six.
	confidentBlocks = 6
)

// bootstrapSeed is fixed so that a result always has the same intervals.
const bootstrapSeed = 0x666169726c656164

// median returns the median of v, which must not be empty. It leaves v alone.
func median(v []float64) float64 { return medianOf(slices.Clone(v)) }

// medianOf sorts v.
func medianOf(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return v[n/2-1] + (v[n/2]-v[n/2-1])/2
}

// confident says whether so many blocks have an interval with a confidence, or
// their range only.
func confident(blocks int) bool { return blocks >= confidentBlocks }

// interval returns the percentile bootstrap interval of the median of blocks,
// their range when they are too few for one, nil when they are too few at all.
func interval(blocks []float64) *Interval {
	if len(blocks) < minBlocks {
		return nil
	}
	if !confident(len(blocks)) {
		return &Interval{slices.Min(blocks), slices.Max(blocks)}
	}
	rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(len(blocks))))
	medians := make([]float64, resamples)
	drawn := make([]float64, len(blocks))
	for i := range medians {
		draw(rng, drawn, blocks)
		medians[i] = medianOf(drawn)
	}
	return middle(medians)
}

// ratioInterval returns the bootstrap interval of the ratio of the medians of
// two independent sets of blocks, the range of the ratios of any two of them when
// either are too few for one, nil when they are too few at all or it has no bound.
func ratioInterval(a, b []float64) *Interval {
	if len(a) < minBlocks || len(b) < minBlocks {
		return nil
	}
	if !confident(min(len(a), len(b))) {
		return ratioRange(a, b)
	}
	rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(len(a)+len(b))))
	ratios := make([]float64, resamples)
	drawnA, drawnB := make([]float64, len(a)), make([]float64, len(b))
	for i := range ratios {
		draw(rng, drawnA, a)
		draw(rng, drawnB, b)
		ratios[i] = medianOf(drawnA) / medianOf(drawnB)
		if !finite(ratios[i]) {
			return nil
		}
	}
	return middle(ratios)
}

// ratioRange returns the range of the ratios of any two blocks, nil when it has
// no bound.
func ratioRange(a, b []float64) *Interval {
	r := Interval{math.Inf(1), math.Inf(-1)}
	for _, x := range []float64{slices.Min(a), slices.Max(a)} {
		for _, y := range b { // all: 0 may lie between two of them
			r.Low, r.High = min(r.Low, x/y), max(r.High, x/y)
		}
	}
	if !finite(r.Low) || !finite(r.High) {
		return nil
	}
	return &r
}

// draw fills into with values of from, each drawn anew.
func draw(rng *rand.Rand, into, from []float64) {
	for i := range into {
		into[i] = from[rng.IntN(len(from))]
	}
}

// middle returns the bounds of the middle 95 % of v, which it sorts.
func middle(v []float64) *Interval {
	slices.Sort(v)
	tail := (1 - confidence) / 2
	low := int(tail * float64(len(v)))
	return &Interval{v[low], v[len(v)-1-low]}
}

// ratios divides a by b block by block. Blocks that only one of them has, and
// those whose baseline is 0, have no ratio.
func ratios(a, b map[int]float64) map[int]float64 {
	r := make(map[int]float64)
	for block, v := range a {
		if base, ok := b[block]; ok && base != 0 {
			r[block] = v / base
		}
	}
	return r
}

// inOrder returns the values in the order of their blocks.
func inOrder(blocks map[int]float64) []float64 {
	keys := make([]int, 0, len(blocks))
	for b := range blocks {
		keys = append(keys, b)
	}
	slices.Sort(keys)
	v := make([]float64, len(keys))
	for i, b := range keys {
		v[i] = blocks[b]
	}
	return v
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
