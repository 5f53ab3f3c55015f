package measure

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// small returns a result in which everything is set.
func small(slow float64) *Result {
	c := NewCollection([]Metric{
		{Name: "echo", Kind: KindLatency, Headline: true, Baseline: "direct", Help: "<from> & to"},
		{Name: "lost_bytes", Kind: KindCounter, Unit: "B", MustBeZero: true},
		{Name: "throughput", Unit: "B/s", Headline: true},
		{Name: "size", Unit: "B"},
	})
	for b := range 5 {
		jitter := 1 + 0.01*float64(b)
		c.Merge("fairlead", b, snap(2*b, func(r *Recorder) {
			latencies("echo", 2*slow*jitter, 5*slow*jitter)(r)
			r.Counter("lost_bytes")
		}))
		c.Merge("direct", b, snap(2*b+1, latencies("direct", 1*jitter)))
		c.Block("throughput", 100*jitter/slow)
		c.Block("size", 10*jitter*slow)
		c.Resource("relay 1", epoch.Add(time.Duration(b)*time.Second), Resource{CPUSeconds: float64(b), RSSBytes: 1 << 20, FDs: 3})
	}
	c.Event(epoch.Add(time.Second), "killed")
	c.Fail("refused", nil)
	c.Note("a note")
	r := c.Result(Info{
		Scenario: "echo", Command: []string{"loadtest", "run", "echo"}, Start: epoch, End: epoch.Add(10 * time.Second),
		Parameters: []Parameter{{"viewers", "1"}}, Machine: ReadMachine(),
	})
	r.Verdicts = Judge(r, []SLO{{"echo_p99", "<", 20, "ms"}})
	return r
}

func TestResultRoundTrip(t *testing.T) {
	r := small(1)
	var b bytes.Buffer
	if err := r.Encode(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("read back:\n%+v\nwritten:\n%+v", got, r)
	}
	for name, bad := range map[string]string{
		"other version":     strings.Replace(text, `"version": 1`, `"version": 2`, 1),
		"no version":        "{}",
		"unknown field":     strings.Replace(text, `"version": 1`, `"version": 1, "more": 1`, 1),
		"something behind":  text + "{}",
		"cut":               text[:len(text)/2],
		"broken histogram":  strings.Replace(text, `"histogram": "`, `"histogram": "AAAA`, 1),
		"another histogram": strings.Replace(text, `"histogram": "`, `"histogram": "`+encodeHistogram(hdr.New(1, 1000, 2))+`","histogram":"`, 1),
	} {
		if name == "another histogram" {
			// The last of two equal keys counts, so that the good one has to go.
			bad = strings.Replace(bad, r.Latencies[0].Histogram, encodeHistogram(hdr.New(1, 1000, 2)), 1)
		}
		if _, err := Decode(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	if err := small(1).Encode(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"version":1,"info":{"scenario":"x","machine":{},"start":"2026-01-01T00:00:00Z","end":"2026-01-01T00:00:00Z"},"generator":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := r.Encode(&b); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := Decode(&b); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		Judge(r, []SLO{{"echo_p99", "<", 20, "ms"}})
	})
}

func FuzzDecodeHistogram(f *testing.F) {
	h := newHistogram()
	record(h, time.Millisecond)
	f.Add(encodeHistogram(h))
	f.Add(encodeHistogram(hdr.New(1, 1000, 2)))
	f.Fuzz(func(t *testing.T, text string) {
		h, err := decodeHistogram(text)
		if err != nil {
			return
		}
		sum := newHistogram()
		if dropped := sum.Merge(h); dropped != 0 {
			t.Fatalf("%d samples fell out of the range", dropped)
		}
	})
}

func TestCompare(t *testing.T) {
	a, b := small(1), small(1.5)
	got := make(map[string]Difference)
	for _, d := range Compare(a, b) {
		got[d.Name] = d
	}
	for name, want := range map[string]Outcome{
		"echo_p50": Worse, "throughput": Worse, "size": Changed, "direct_p50": Equal, "lost_bytes": Equal, "echo_p50_ratio": Worse,
	} {
		if d := got[name]; d.Outcome != want {
			t.Errorf("%s: %s, want %s (%+v)", name, d.Outcome, want, d)
		}
	}
	if d := got["echo_p50"]; d.Ratio == nil || *d.Ratio < 1.49 || *d.Ratio > 1.51 || d.RatioInterval == nil || !d.Headline {
		t.Errorf("echo_p50 = %+v", d)
	}
	for _, d := range Compare(b, a) {
		if d.Name == "echo_p50" && d.Outcome != Better {
			t.Errorf("the other way round: %s, want better", d.Outcome)
		}
	}
	for _, d := range Compare(a, small(1.001)) {
		if d.Name == "echo_p99" && d.Outcome != Same {
			t.Errorf("a thousandth slower: %s, want within the spread", d.Outcome)
		}
	}
	one := 1.0
	b.Figures = []Figure{{Name: "lost_bytes", Metric: "lost_bytes", Unit: "B", Value: &one, MustBeZero: true}, {Name: "new", Value: &one}}
	for _, d := range Compare(a, b) {
		switch want := Unknown; d.Name {
		case "lost_bytes":
			want = Worse
			fallthrough
		case "new", "echo_p50":
			if d.Outcome != want {
				t.Errorf("%s: %s, want %s", d.Name, d.Outcome, want)
			}
		}
	}
}
