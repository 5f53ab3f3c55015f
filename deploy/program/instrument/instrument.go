// Package instrument unifies the metrics of all programs: time histograms,
// label values that exist from the start, and the routes for metrics and
// profiles.
package instrument

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A native histogram distinguishes times that differ by a tenth. Beyond
// maxBuckets it becomes coarser, for at least the reset time below.
const (
	bucketFactor = 1.1
	maxBuckets   = 100
	coarseFor    = time.Hour
)

// maxScrapes bounds concurrent scrapes; further ones get 503.
const maxScrapes = 4

// The classic buckets besides the native ones, in seconds: enough for
// thresholds if a Prometheus doesn't scrape native histograms.
var (
	shortTimes = []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}
	longTimes  = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	lives      = []float64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600}
)

// ShortTimes returns options for a histogram of microseconds to a second, in
// seconds.
func ShortTimes(name, help string) prometheus.HistogramOpts { return times(name, help, shortTimes) }

// LongTimes returns options for a histogram of milliseconds to a minute, in
// seconds.
func LongTimes(name, help string) prometheus.HistogramOpts { return times(name, help, longTimes) }

// Lives returns options for a histogram of seconds to days, in seconds.
func Lives(name, help string) prometheus.HistogramOpts { return times(name, help, lives) }

func times(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: bucketFactor, NativeHistogramMaxBucketNumber: maxBuckets,
		NativeHistogramMinResetDuration: coarseFor,
	}
}

// Counters returns counters with one label. Each of its values is exported from
// the start, as 0.
func Counters[V ~string](name, help, label string, values ...V) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
	return vec
}

// Times returns histograms with one label. Each of its values is exported from
// the start, as empty.
func Times[V ~string](opts prometheus.HistogramOpts, label string, values ...V) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(opts, []string{label})
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
	return vec
}

// NewRegistry returns a registry with the metrics of the Go runtime and the
// process, and with name, a constant 1 labelled with the revision.
func NewRegistry(name, revision string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "What runs: always 1."}, []string{"revision"})
	info.WithLabelValues(revision).Set(1)
	registry.MustRegister(info)
	return registry
}

// Routes adds GET /metrics and /debug/pprof/ to mux. They need no credential,
// so they belong on an operator's listener only. They leave out the program's
// command line, which names other listeners.
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

// Count sends a counter that somebody else keeps, as a collector does.
func Count(out chan<- prometheus.Metric, desc *prometheus.Desc, n uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
}

// Gauge sends a gauge that somebody else keeps, as a collector does.
func Gauge[N ~int | ~int64 | ~float64](out chan<- prometheus.Metric, desc *prometheus.Desc, n N, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
}
