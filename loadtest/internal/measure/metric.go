// Package measure records what a load test sees and makes figures of it.
//
// A [Recorder] lives in each process that makes load. Its snapshots go to the
// one [Collection] of the coordinator, which keeps them per second, per block
// and in all, and turns them into a [Result]: figures with their spread, series
// for the plots, and the verdict on the bounds that were asked for.
//
// # Open loop
//
// A latency is the time from when something was due to when it had happened,
// not from when a generator got round to it. So a stalled server cannot hide
// behind a generator that waits for it. Where a scenario is a closed loop, its
// metrics' help says so by what they are timed from.
//
// # Figures
//
// Times are in seconds, sizes in bytes. A latency named "echo" has the figures
// echo_p50, echo_p90, echo_p99, echo_p999, echo_max and echo_count. A figure's
// value is over everything that was measured; its median and interval are over
// the blocks of the run (a block's value counts once, however many samples it
// has). What was not measured has no value, which is not the same as 0.
package measure

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind says how a metric is recorded.
type Kind string

const (
	// KindValue is a number set by [Collection.Value] or [Collection.Block].
	// It is the kind of a metric that names none.
	KindValue Kind = ""
	// KindLatency is a distribution recorded by a [Latency], in seconds.
	KindLatency Kind = "latency"
	// KindCounter is a sum over all processes recorded by a [Counter].
	KindCounter Kind = "counter"
)

// A Metric is what a scenario declares before it runs.
type Metric struct {
	// Name in lower case with underscores: "delivery", "lost_bytes".
	Name string `json:"name"`
	// Kind says how it is recorded.
	Kind Kind `json:"kind,omitempty"`
	// Unit is "s", "B", "B/s", "1/s", "%", "" for a ratio or a count, or a word
	// that is printed behind the number ("chunks/s").
	Unit string `json:"unit,omitempty"`
	// Help is one phrase: what is measured, from where to where.
	Help string `json:"help,omitempty"`
	// Baseline names the metric that this one is divided by, block by block:
	// the figure NAME_ratio, of a latency NAME_p50_ratio and so on.
	Baseline string `json:"baseline,omitempty"`
	// Headline metrics stand at the top of the report.
	Headline bool `json:"headline,omitempty"`
	// LowerIsBetter says in which direction a comparison is good news. It goes
	// without saying of a latency.
	LowerIsBetter bool `json:"lower_is_better,omitempty"`
	// MustBeZero makes every other value break the run, and so does none,
	// whether or not a bound was asked for.
	MustBeZero bool `json:"must_be_zero,omitempty"`
	// CrossesClocks says that its times begin by the clock of a source and end by
	// ours, so that [Collection.ClockError] is in them. Times whose both ends are
	// ours, such as an echo's, don't.
	CrossesClocks bool `json:"crosses_clocks,omitempty"`
}

// LagName is the latency that every generator records: how late what it had to
// do was begun.
const LagName = "generator_lag"

// statistic is a figure made of a latency.
type statistic struct {
	suffix   string
	quantile float64 // of those that are quantiles
}

// statistics of a latency in the order in which they are shown.
var statistics = []statistic{
	{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}, {"max", 100}, {"count", 0},
}

// ratioSuffix is appended to a figure's name for its ratio to the baseline.
const ratioSuffix = "_ratio"

// Figures returns the names of the figures that metrics will have, in the order
// in which they are shown. A bound can be set on each.
func Figures(metrics []Metric) []string {
	var names []string
	for _, m := range complete(metrics) {
		for _, name := range m.figures() {
			names = append(names, name)
			if m.Baseline != "" && !strings.HasSuffix(name, "_count") {
				names = append(names, name+ratioSuffix)
			}
		}
	}
	return names
}

// figures returns the names of the metric's own figures.
func (m Metric) figures() []string {
	if m.Kind != KindLatency {
		return []string{m.Name}
	}
	names := make([]string, 0, len(statistics))
	for _, s := range statistics {
		names = append(names, m.Name+"_"+s.suffix)
	}
	return names
}

// complete returns metrics with the baselines that are not declared themselves
// and with the generators' own lag, which is always measured.
func complete(metrics []Metric) []Metric {
	all := slices.Clone(metrics)
	has := func(name string) bool {
		return slices.ContainsFunc(all, func(m Metric) bool { return m.Name == name })
	}
	for _, m := range metrics {
		if m.Baseline != "" && !has(m.Baseline) {
			all = append(all, Metric{
				Name: m.Baseline, Kind: m.Kind, Unit: m.Unit,
				Help:          "baseline of " + m.Name,
				LowerIsBetter: m.LowerIsBetter,
			})
		}
	}
	if !has(LagName) {
		all = append(all, Metric{
			Name: LagName, Kind: KindLatency, Unit: "s",
			Help: "how late the generators began what was due",
		})
	}
	for i := range all {
		if all[i].Kind == KindLatency {
			all[i].Unit, all[i].LowerIsBetter = "s", true
		}
	}
	return all
}

// A NameError says that there is no figure of that name.
type NameError struct {
	Name  string
	Known []string // the names that there are
}

func (e *NameError) Error() string {
	return fmt.Sprintf("no metric is called %q (there are %s)", e.Name, strings.Join(e.Known, ", "))
}
