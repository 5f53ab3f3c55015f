// Package instrument has the metrics of all programs look alike: histograms of
// times, label values that show before anything has happened, and the pages on
// which operators find metrics and profiles.
package instrument

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A native histogram distinguishes times that differ by a tenth, with so many
// buckets at most; beyond that it becomes coarser, for so long at least.
const (
	bucketFactor = 1.1
	maxBuckets   = 100
	coarseFor    = time.Hour
)

// maxScrapes bounds the scrapes at a time; further ones get 503.
const maxScrapes = 4

// The classic buckets beside the native ones, in seconds: enough for thresholds
// where a Prometheus doesn't scrape native histograms.
var (
	shortTimes = []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}
	longTimes  = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	lives      = []float64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600}
)

// ShortTimes returns options for a histogram of what takes microseconds to a
// second, in seconds.
func ShortTimes(name, help string) prometheus.HistogramOpts { return times(name, help, shortTimes) }

// LongTimes returns options for a histogram of what takes milliseconds to a
// minute, in seconds.
func LongTimes(name, help string) prometheus.HistogramOpts { return times(name, help, longTimes) }

// Lives returns options for a histogram of what lasts seconds to days, in
// seconds.
func Lives(name, help string) prometheus.HistogramOpts { return times(name, help, lives) }

func times(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: bucketFactor, NativeHistogramMaxBucketNumber: maxBuckets,
		NativeHistogramMinResetDuration: coarseFor,
	}
}

// Counters returns a vector of counters with one label, of which all values are
// known: each shows from the start, as 0.
func Counters[V ~string](name, help, label string, values ...V) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
	return vec
}

// Times returns a vector of histograms with one label, of which all values are
// known: each shows from the start, as empty.
func Times[V ~string](opts prometheus.HistogramOpts, label string, values ...V) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(opts, []string{label})
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
	return vec
}

// NewRegistry returns a registry of the Go runtime's metrics, the process's, and
// name, which is always 1 and says what runs.
func NewRegistry(name, revision string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "What runs: always 1."}, []string{"revision"})
	info.WithLabelValues(revision).Set(1)
	registry.MustRegister(info)
	return registry
}

// Routes adds GET /metrics and /debug/pprof/ to mux. They tell everybody who
// asks, so they belong on an operator's listener only. Its command line a program
// doesn't tell: other listeners are named there.
func Routes(mux *http.ServeMux, metrics prometheus.Gatherer) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes,
	}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler())
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}
