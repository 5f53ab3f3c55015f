package measure

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Version is that of the format in which results are written.
const Version = 1

// A Result is everything that a run found out.
type Result struct {
	Version   int       `json:"version"`
	Info      Info      `json:"info"`
	Verdicts  []Verdict `json:"verdicts,omitempty"` // set by [Judge]
	Generator Generator `json:"generator"`
	Figures   []Figure  `json:"figures,omitempty"`
	Latencies []Series  `json:"latencies,omitempty"`
	Counters  []Rate    `json:"counters,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	Phases    []Phase   `json:"phases,omitempty"`
	Events    []Event   `json:"events,omitempty"`
	Failures  []Failure `json:"failures,omitempty"`
	// ClockError is how far the source's clock and ours may be apart, in seconds,
	// beside what is known of it; 0 when they are one clock. It is in the figures
	// that cross clocks.
	ClockError float64 `json:"clock_error,omitempty"`
	// Notes are what a reader of the figures has to know.
	Notes []string `json:"notes,omitempty"`
}

// Info is what the caller knows of a run.
type Info struct {
	Scenario    string      `json:"scenario"`
	Summary     string      `json:"summary,omitempty"`
	Command     []string    `json:"command,omitempty"` // exactly as it was started
	Revision    string      `json:"revision,omitempty"`
	Target      string      `json:"target,omitempty"` // "local", an origin
	Parameters  []Parameter `json:"parameters,omitempty"`
	Machine     Machine     `json:"machine"`
	Start       time.Time   `json:"start"`
	End         time.Time   `json:"end"`
	Interrupted bool        `json:"interrupted,omitempty"` // ended before its time
	Failure     string      `json:"failure,omitempty"`     // why the run could not go on
}

// A Parameter is a setting of the run that matters for its figures.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Figure is one number of a result.
type Figure struct {
	Metric string `json:"metric"` // the name it was declared by
	Name   string `json:"name"`   // its own: METRIC, METRIC_p99, METRIC_p99_ratio
	Unit   string `json:"unit,omitempty"`
	Help   string `json:"help,omitempty"`
	// Value is over everything measured: the median of the blocks for a figure
	// that has only those. Nil when nothing was measured.
	Value *float64 `json:"value"`
	// Median and Interval are over the blocks.
	Median   *float64  `json:"median,omitempty"`
	Interval *Interval `json:"interval,omitempty"`
	// Confidence is that with which Interval holds the median: 0.95, or 0 when
	// Interval is no more than the range of the blocks, of which there are few.
	Confidence float64   `json:"confidence,omitempty"`
	Blocks     []float64 `json:"blocks,omitempty"` // a value each, in order
	// Baseline is the name of the figure that this one is compared to, Ratio
	// the name of the figure that says how.
	Baseline string `json:"baseline,omitempty"`
	Ratio    string `json:"ratio,omitempty"`

	Headline      bool `json:"headline,omitempty"`
	LowerIsBetter bool `json:"lower_is_better,omitempty"`
	MustBeZero    bool `json:"must_be_zero,omitempty"`
	// Exact figures are counts, which a late generator does not falsify.
	Exact bool `json:"exact,omitempty"`
	// CrossesClocks figures have [Result.ClockError] in them ([Result.ByClock]).
	CrossesClocks bool `json:"crosses_clocks,omitempty"`
}

// Ranges returns how many blocks the figure's interval is the range of, 0 when
// it is an interval with a confidence of 95 %, or none.
func (f *Figure) Ranges() int {
	if f.Interval == nil || confident(len(f.Blocks)) {
		return 0
	}
	return len(f.Blocks)
}

// An Interval holds the median of the blocks with a confidence of 95 %, or is
// their range ([Figure.Ranges]).
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// A Series is a latency over time.
type Series struct {
	Name      string `json:"name"`
	Help      string `json:"help,omitempty"`
	Histogram string `json:"histogram,omitempty"` // HDR, compressed, base64
	Count     int64  `json:"count"`
	Tally     Tally  `json:"tally,omitzero"`
	// Points are of the seconds in which something was measured.
	Points []Point `json:"points,omitempty"`
}

// Distribution returns the histogram of the whole run, in microseconds, empty
// when nothing was measured.
func (s Series) Distribution() (*hdr.Histogram, error) {
	if s.Histogram == "" {
		return newHistogram(), nil
	}
	return decodeHistogram(s.Histogram)
}

// A Point is a latency in one second, in seconds.
type Point struct {
	Second int64   `json:"t"` // of the clock, after that in which the run started
	Count  int64   `json:"n"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// A Rate is a counter over time.
type Rate struct {
	Name   string      `json:"name"`
	Unit   string      `json:"unit,omitempty"`
	Help   string      `json:"help,omitempty"`
	Total  int64       `json:"total"`
	Points []RatePoint `json:"points,omitempty"`
}

// A RatePoint is how much a counter grew in one second.
type RatePoint struct {
	Second int64   `json:"t"`
	Value  float64 `json:"v"`
}

// A Process is what a process used over time.
type Process struct {
	Name   string          `json:"name"`
	Cores  int             `json:"cores,omitempty"` // that it may use, if known
	Points []ResourcePoint `json:"points,omitempty"`
}

// A ResourcePoint is what a process used at a time.
type ResourcePoint struct {
	Seconds    float64 `json:"t"`             // after the start
	CPU        float64 `json:"cpu"`           // cores used since the point before; -1: not known
	RSSBytes   int64   `json:"rss"`           //
	HeapBytes  int64   `json:"heap,omitzero"` // 0: not known
	FDs        int     `json:"fds,omitzero"`  // 0: not known
	Goroutines int     `json:"goroutines,omitzero"`
}

// A Phase is a stretch of a run in which the same thing was done.
type Phase struct {
	Name  string  `json:"name"`
	Block int     `json:"block"` // counted from 0; -1: not a block
	Start float64 `json:"start"` // seconds after the start of the run
	End   float64 `json:"end"`
}

// An Event is something done to what is measured.
type Event struct {
	Seconds float64 `json:"t"`
	Text    string  `json:"text"`
}

// A Failure is how often something failed for one reason.
type Failure struct {
	Reason  string   `json:"reason"`
	Count   int64    `json:"count"`
	Samples []string `json:"samples,omitempty"`
}

// Generator says whether the load was made as it should have been.
type Generator struct {
	Processes int      `json:"processes"`
	CPU       float64  `json:"cpu"`     // of the busiest in its busiest 5 s: share of what it may use, 0 to 1
	LagP99    *float64 `json:"lag_p99"` // seconds
	Saturated bool     `json:"saturated"`
	Why       []string `json:"why,omitempty"` // of being saturated
}

// A Verdict is whether a bound holds.
type Verdict struct {
	Bound  string   `json:"bound"` // "echo_p99<20ms"
	Metric string   `json:"metric"`
	Value  *float64 `json:"value"`
	OK     bool     `json:"ok"`
	// Undecided verdicts are not OK: the interval of the blocks' median straddles
	// the bound, and more blocks would tell.
	Undecided bool `json:"undecided,omitempty"`
	// ByClock verdicts are not OK and not Undecided either: the error of the
	// clocks leaves the bound open, and more blocks would not tell.
	ByClock bool   `json:"by_clock,omitempty"`
	Asked   bool   `json:"asked"`         // by the user; the others go without saying
	Why     string `json:"why,omitempty"` // in words, when not OK
}

// Figure returns the figure of that name, nil if there is none.
func (r *Result) Figure(name string) *Figure {
	for i := range r.Figures {
		if r.Figures[i].Name == name {
			return &r.Figures[i]
		}
	}
	return nil
}
