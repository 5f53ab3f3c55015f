package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		v    []float64
		want float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
	} {
		before := slices.Clone(tt.v)
		if got := median(tt.v); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.v, got, tt.want)
		}
		if !slices.Equal(tt.v, before) {
			t.Errorf("median changed %v to %v", before, tt.v)
		}
	}
}

func TestIntervalNeedsBlocks(t *testing.T) {
	if i := interval([]float64{1, 2}); i != nil {
		t.Errorf("two blocks have the interval %v", *i)
	}
	if i := interval([]float64{1, 2, 3}); i == nil || i.Low != 1 || i.High != 3 {
		t.Errorf("interval of three blocks = %v, want all of them", i)
	}
	if i := interval([]float64{5, 5, 5, 5}); i == nil || i.Low != 5 || i.High != 5 {
		t.Errorf("interval of equal blocks = %v", i)
	}
}

func TestIntervalIsFixed(t *testing.T) {
	blocks := []float64{1.1, 0.9, 1.3, 1.0, 1.2, 0.8, 1.05, 0.95, 1.15}
	a, b := interval(blocks), interval(blocks)
	if *a != *b {
		t.Errorf("two intervals of the same blocks: %v and %v", *a, *b)
	}
	if m := median(blocks); a.Low > m || a.High < m {
		t.Errorf("interval %v is beside the median %v", *a, m)
	}
}

// TestIntervalCovers counts how often the interval holds the true median.
func TestIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const runs, blocks, truth = 300, 15, 10.0
	hit := 0
	for range runs {
		v := make([]float64, blocks)
		for i := range v {
			v[i] = truth + rng.NormFloat64()
		}
		if i := interval(v); i.Low <= truth && truth <= i.High {
			hit++
		}
	}
	if share := float64(hit) / runs; share < 0.90 {
		t.Errorf("the interval held the truth in %.1f %% of the runs, want about 95 %%", share*100)
	}
}

func TestRatios(t *testing.T) {
	a := map[int]float64{0: 2, 1: 9, 2: 4, 3: 5}
	b := map[int]float64{0: 1, 1: 3, 2: 0, 4: 1}
	if got, want := inOrder(ratios(a, b)), []float64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
}

func TestRatioInterval(t *testing.T) {
	a, b := []float64{2, 2.1, 1.9, 2.05}, []float64{1, 1.02, 0.99, 1.01}
	i := ratioInterval(a, b)
	if i == nil || i.Low > 2 || i.High < 2 || i.Low < 1.8 || i.High > 2.2 {
		t.Errorf("interval of the ratio = %v", i)
	}
	if i := ratioInterval(a, []float64{0, 0, 0}); i != nil {
		t.Errorf("ratio to zero has the interval %v", *i)
	}
}
