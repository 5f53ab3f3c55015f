package measure

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// begun returns a recorder that measures what is due from epoch on.
func begun() *Recorder {
	r := NewRecorder()
	r.Begin(epoch)
	return r
}

func TestLatencyCountsFromDue(t *testing.T) {
	r := begun()
	// The generator was held up for a second; what was due meanwhile is late.
	for i := range 1000 {
		due := epoch.Add(time.Duration(i) * time.Millisecond)
		r.Latency("echo").Record(due, epoch.Add(time.Second))
	}
	h, err := decodeHistogram(r.Snapshot().Latencies["echo"].Histogram)
	if err != nil {
		t.Fatal(err)
	}
	if p50, _ := quantile(h, 50); p50 < 0.495 || p50 > 0.505 {
		t.Errorf("p50 = %v s, want half a second", p50)
	}
	if h.TotalCount() != 1000 {
		t.Errorf("%d samples, want 1000", h.TotalCount())
	}
}

func TestWarmupIsDropped(t *testing.T) {
	r := NewRecorder()
	l, c := r.Latency("echo"), r.Counter("done")
	l.RecordDuration(epoch, time.Millisecond) // before Begin
	r.Begin(epoch)
	l.RecordDuration(epoch.Add(-time.Nanosecond), time.Millisecond)
	c.AddAt(epoch.Add(-time.Nanosecond), 5)
	l.RecordDuration(epoch, time.Millisecond)
	c.AddAt(epoch, 7)
	c.Add(1)
	s := r.Snapshot()
	if got := s.Latencies["echo"].Tally.Warmup; got != 2 {
		t.Errorf("%d samples of the warm-up, want 2", got)
	}
	if h, err := decodeHistogram(s.Latencies["echo"].Histogram); err != nil || h.TotalCount() != 1 {
		t.Errorf("histogram = %v, %v; want one sample", h, err)
	}
	if s.Counters["done"] != 8 {
		t.Errorf("counter = %d, want 8", s.Counters["done"])
	}
}

func TestLatencyRange(t *testing.T) {
	r := begun()
	l := r.Latency("echo")
	l.RecordDuration(epoch, -time.Second)
	l.RecordDuration(epoch, time.Hour)
	l.RecordDuration(epoch, 10*time.Minute)
	s := r.Snapshot().Latencies["echo"]
	if want := (Tally{Early: 1, Clamped: 1}); s.Tally != want {
		t.Errorf("tally = %+v, want %+v", s.Tally, want)
	}
	h, err := decodeHistogram(s.Histogram)
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := quantile(h, 100); p < 600 || p > 600*1.001 {
		t.Errorf("maximum = %v s, want 600", p)
	}
	if h.Min() != 0 {
		t.Errorf("minimum = %d µs, want 0", h.Min())
	}
}

func TestSnapshotTakes(t *testing.T) {
	r := begun()
	r.Latency("echo").RecordDuration(epoch, time.Millisecond)
	r.Counter("done").Add(3)
	r.Fail("refused", errors.New("one"))
	first := r.Snapshot()
	second := r.Snapshot()
	if len(second.Latencies) != 0 || len(second.Failures) != 0 {
		t.Errorf("second snapshot holds %v and %v", second.Latencies, second.Failures)
	}
	if n, ok := second.Counters["done"]; n != 0 || !ok {
		t.Errorf("second snapshot's counter = %d, %t; want 0, known", n, ok)
	}
	if !second.From.Equal(first.To) {
		t.Errorf("second snapshot begins at %v, the first ended at %v", second.From, first.To)
	}
}

func TestFailuresAreBounded(t *testing.T) {
	r := begun()
	for i := range 2 * maxReasons {
		r.Fail(fmt.Sprintf("reason %d", i), errors.New("once"))
	}
	for i := range 20 {
		r.Fail("reason 0", fmt.Errorf("sample %d \x1b[31m%s", i, strings.Repeat("é", maxSampleBytes)))
	}
	s := r.Snapshot()
	if len(s.Failures) > maxReasons+1 {
		t.Errorf("%d reasons are told apart", len(s.Failures))
	}
	if got := s.Failures[otherReason].Count; got != maxReasons {
		t.Errorf("%d other failures, want %d", got, maxReasons)
	}
	f := s.Failures["reason 0"]
	if f.Count != 21 || len(f.Samples) != maxSamples {
		t.Errorf("reason 0 = %d times, %d samples", f.Count, len(f.Samples))
	}
	for _, text := range f.Samples {
		if len(text) > maxSampleBytes || strings.Contains(text, "\x1b") {
			t.Errorf("sample %q", text)
		}
	}
	r.Fail("reason 0", errors.New("later"))
	if later := r.Snapshot().Failures["reason 0"]; later.Count != 1 || len(later.Samples) != 0 {
		t.Errorf("later failures = %+v, want no more samples", later)
	}
}

func TestRecorderConcurrent(t *testing.T) {
	r := begun()
	const workers, each = 8, 2000
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				r.Latency("echo").RecordDuration(epoch, time.Duration(i)*time.Microsecond)
				r.Counter("done").Add(1)
				if i%500 == 0 {
					r.Fail("refused", fmt.Errorf("worker %d", w))
				}
			}
		})
	}
	c := NewCollection([]Metric{{Name: "echo", Kind: KindLatency}})
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }() // It ends with the workers, waited for below.
	for {
		c.Merge("", -1, r.Snapshot())
		select {
		case <-done:
			c.Merge("", -1, r.Snapshot())
			res := c.Result(Info{Start: epoch})
			if v := res.Figure("echo_count").Value; v == nil || *v != workers*each {
				t.Errorf("echo_count = %v, want %d", v, workers*each)
			}
			if v := res.Figure("done").Value; v == nil || *v != workers*each {
				t.Errorf("done = %v, want %d", v, workers*each)
			}
			return
		default:
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	l := begun().Latency("echo")
	b.ReportAllocs()
	for b.Loop() {
		l.Record(epoch, epoch.Add(1234*time.Microsecond))
	}
}

func BenchmarkSnapshotMerge(b *testing.B) {
	r, c := begun(), NewCollection(nil)
	l := r.Latency("echo")
	b.ReportAllocs()
	for b.Loop() {
		for i := range 5000 {
			l.RecordDuration(epoch, time.Duration(i*i)*time.Nanosecond)
		}
		c.Merge("", 0, r.Snapshot())
	}
}
