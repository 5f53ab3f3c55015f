package measure

import "testing"

// The interval of a few blocks is their range, and that of a ratio the range of
// all ratios.
func TestRange(t *testing.T) {
	if i := interval([]float64{3, 1, 5, 2, 4}); *i != (Interval{1, 5}) {
		t.Errorf("range of five blocks = %v", *i)
	}
	if i := interval([]float64{3, 1, 5, 2, 4, 6}); i.Low == 1 && i.High == 6 {
		t.Error("the interval of six blocks is their range")
	}
	if i := ratioInterval([]float64{2, 3, 4}, []float64{1, 2, 1, 1, 1, 1, 1}); *i != (Interval{1, 4}) {
		t.Errorf("range of ratios = %v", *i)
	}
	if i := ratioInterval([]float64{-4, 3, 4}, []float64{1, 2, -1}); *i != (Interval{-4, 4}) {
		t.Errorf("range of ratios of both signs = %v", *i)
	}
	for _, b := range [][]float64{{0, 1, 2}, {-1, 0, 1}} {
		if i := ratioInterval([]float64{1, 2, 3}, b); i != nil {
			t.Errorf("ratios to %v have the range %v", b, *i)
		}
	}
}
