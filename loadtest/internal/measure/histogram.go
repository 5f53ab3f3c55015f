package measure

import (
	"errors"
	"fmt"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Every histogram has this shape, in microseconds, so that any two can be
// merged without loss.
const (
	lowestMicros  = 1
	highestMicros = int64(10 * time.Minute / time.Microsecond)
	digits        = 3
)

// maxHistogramText bounds an encoded histogram in bytes.
const maxHistogramText = 256 << 10

// newHistogram returns an empty histogram.
func newHistogram() *hdr.Histogram { return hdr.New(lowestMicros, highestMicros, digits) }

// record counts a duration and says whether it had to be cut to the range.
func record(h *hdr.Histogram, d time.Duration) (clamped bool) {
	v := (d + time.Microsecond/2).Microseconds()
	if v > highestMicros {
		v, clamped = highestMicros, true
	}
	// A value within the range is never refused.
	_ = h.RecordValue(max(v, 0))
	return clamped
}

// encodeHistogram returns h in HDR's compressed form, base64.
func encodeHistogram(h *hdr.Histogram) string {
	b, err := h.Encode(hdr.V2CompressedEncodingCookieBase)
	if err != nil {
		return "" // Writing to a buffer does not fail.
	}
	return string(b)
}

// decodeHistogram is the reverse of encodeHistogram. It accepts no other shape.
func decodeHistogram(text string) (*hdr.Histogram, error) {
	if len(text) > maxHistogramText {
		return nil, fmt.Errorf("histogram of %d bytes is too long", len(text))
	}
	h, err := hdr.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("decode histogram: %w", err)
	}
	if h.LowestTrackableValue() != lowestMicros || h.HighestTrackableValue() != highestMicros ||
		h.SignificantFigures() != digits {
		return nil, errors.New("histogram of another shape")
	}
	return h, nil
}

// quantile returns the value in seconds that percent of the samples do not
// exceed, false when there are none.
func quantile(h *hdr.Histogram, percent float64) (float64, bool) {
	if h == nil || h.TotalCount() == 0 {
		return 0, false
	}
	return seconds(h.ValueAtPercentile(percent)), true
}

// value returns a latency's statistic, false when there are no samples.
func (s statistic) value(h *hdr.Histogram) (float64, bool) {
	if s.suffix == "count" {
		if h == nil {
			return 0, false
		}
		return float64(h.TotalCount()), true
	}
	return quantile(h, s.quantile)
}

// seconds of microseconds.
func seconds(micros int64) float64 { return float64(micros) / 1e6 }
