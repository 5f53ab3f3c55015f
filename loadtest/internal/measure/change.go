package measure

// Change returns the ratio of the medians of after and before, and the interval
// that holds it with a confidence of 95 %. With few values that is the range of
// the ratios of any two, with too few it is nil. ok is false when there is no
// ratio.
func Change(before, after []float64) (ratio float64, i *Interval, ok bool) {
	if len(before) == 0 || len(after) == 0 || median(before) == 0 {
		return 0, nil, false
	}
	return median(after) / median(before), ratioInterval(after, before), true
}

// Median returns the median of v, 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return median(v)
}
