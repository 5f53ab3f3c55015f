package measure

import (
	"maps"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// maxReasons bounds the reasons of failures that are told apart.
	maxReasons = 64
	// otherReason counts the failures beyond that.
	otherReason = "other"
	// maxSamples bounds the texts kept of each reason.
	maxSamples = 5
	// maxSampleBytes bounds each of them.
	maxSampleBytes = 300
)

// A Recorder collects what one process measures. Its methods, and those of its
// latencies and counters, may be called concurrently.
type Recorder struct {
	begin    atomic.Int64 // when measuring begins, Unix nanoseconds
	snapshot sync.Mutex   // held while a snapshot is taken

	// Guarded by mu.
	mu        sync.Mutex
	latencies map[string]*Latency
	counters  map[string]*Counter
	failures  map[string]*failureCount
	process   string
	last      time.Time // the end of the last snapshot
}

// NewRecorder returns a recorder that measures nothing before Begin.
func NewRecorder() *Recorder {
	r := &Recorder{
		latencies: make(map[string]*Latency),
		counters:  make(map[string]*Counter),
		failures:  make(map[string]*failureCount),
		last:      time.Now(),
	}
	r.begin.Store(math.MaxInt64)
	return r
}

// Begin ends the warm-up: what is due at or after that time is measured.
func (r *Recorder) Begin(at time.Time) { r.begin.Store(at.UnixNano()) }

// Process makes snapshots carry the resources of this process under that name.
// One that begins with "generator" counts for [Generator].
func (r *Recorder) Process(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = name
}

// Latency returns the latency of that name, made at the first call.
func (r *Recorder) Latency(name string) *Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.latencies[name]
	if l == nil {
		l = &Latency{begin: &r.begin, hist: newHistogram(), spare: newHistogram()}
		r.latencies[name] = l
	}
	return l
}

// Counter returns the counter of that name, made at the first call. A counter
// that was made and never added to is 0; one that was never made has no value.
func (r *Recorder) Counter(name string) *Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counters[name]
	if c == nil {
		c = &Counter{begin: &r.begin}
		r.counters[name] = c
	}
	return c
}

// A Latency is a distribution of durations: 1 µs to 10 minutes, 3 digits.
// Longer ones are counted as 10 minutes, and that they were is told.
type Latency struct {
	begin *atomic.Int64

	// Guarded by mu.
	mu          sync.Mutex
	hist, spare *hdr.Histogram
	tally       Tally
}

// Record counts how long after due something was at. It drops what was due in
// the warm-up.
func (l *Latency) Record(due, at time.Time) { l.RecordDuration(due, at.Sub(due)) }

// RecordDuration is Record for a duration that is already known.
func (l *Latency) RecordDuration(due time.Time, d time.Duration) {
	warm := due.UnixNano() < l.begin.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if warm {
		l.tally.Warmup++
		return
	}
	if d < 0 {
		l.tally.Early++
	}
	if record(l.hist, d) {
		l.tally.Clamped++
	}
}

// take returns what was recorded since the last call.
func (l *Latency) take() (text string, t Tally) {
	l.mu.Lock()
	full := l.hist
	l.hist, l.spare = l.spare, nil
	t, l.tally = l.tally, Tally{}
	l.mu.Unlock()
	if full.TotalCount() > 0 {
		text = encodeHistogram(full)
		full.Reset()
	}
	l.mu.Lock()
	l.spare = full
	l.mu.Unlock()
	return text, t
}

// A Counter is a sum.
type Counter struct {
	begin *atomic.Int64
	n     atomic.Int64
}

// Add adds n, in the warm-up as well.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// AddAt adds n unless due lies in the warm-up.
func (c *Counter) AddAt(due time.Time, n int64) {
	if due.UnixNano() >= c.begin.Load() {
		c.n.Add(n)
	}
}

// A Tally counts what a latency's histogram does not show.
type Tally struct {
	Warmup  int64 `json:"warmup,omitempty"`  // due in the warm-up, dropped
	Early   int64 `json:"early,omitempty"`   // happened before due, counted as 0
	Clamped int64 `json:"clamped,omitempty"` // over 10 minutes, counted as 10
}

func (t *Tally) add(o Tally) {
	t.Warmup += o.Warmup
	t.Early += o.Early
	t.Clamped += o.Clamped
}

// A Snapshot is what one process recorded in a stretch of time.
type Snapshot struct {
	From      time.Time                  `json:"from"`
	To        time.Time                  `json:"to"`
	Latencies map[string]LatencySnapshot `json:"latencies,omitempty"`
	Counters  map[string]int64           `json:"counters,omitempty"`
	Failures  map[string]FailureSnapshot `json:"failures,omitempty"`
	Process   *ProcessSnapshot           `json:"process,omitempty"`
}

// A LatencySnapshot is one latency's share of a snapshot.
type LatencySnapshot struct {
	Histogram string `json:"histogram,omitempty"` // HDR, compressed, base64
	Tally     Tally  `json:"tally,omitzero"`
}

// A ProcessSnapshot is what the recording process itself uses.
type ProcessSnapshot struct {
	Name     string   `json:"name"`
	Cores    int      `json:"cores"` // that it may use
	Resource Resource `json:"resource"`
}

// Snapshot returns what was recorded since the last one.
func (r *Recorder) Snapshot() Snapshot {
	r.snapshot.Lock()
	defer r.snapshot.Unlock()
	// Encoding takes milliseconds, for which nobody waits.
	r.mu.Lock()
	latencies, counters := maps.Clone(r.latencies), maps.Clone(r.counters)
	s := Snapshot{From: r.last, To: time.Now(), Failures: takeFailures(r.failures)}
	r.last = s.To
	process := r.process
	r.mu.Unlock()

	for name, l := range latencies {
		text, tally := l.take()
		if text == "" && tally == (Tally{}) {
			continue
		}
		if s.Latencies == nil {
			s.Latencies = make(map[string]LatencySnapshot)
		}
		s.Latencies[name] = LatencySnapshot{text, tally}
	}
	for name, c := range counters {
		if s.Counters == nil {
			s.Counters = make(map[string]int64)
		}
		s.Counters[name] = c.n.Swap(0)
	}
	if process != "" {
		if res, err := ReadSelf(); err == nil {
			s.Process = &ProcessSnapshot{process, runtime.GOMAXPROCS(0), res}
		}
	}
	return s
}
