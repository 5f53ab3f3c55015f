package report_test

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/report"
)

// write asks for the made-up reports as files, to look at them in a browser.
var write = flag.String("write", "", "directory to write the made-up reports to")

// start is when every made-up run began.
var start = time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC)

// metrics of the made-up scenario.
var metrics = []measure.Metric{
	{Name: "delivery", Kind: measure.KindLatency, Headline: true, Baseline: "baseline_delivery",
		Help: "from when the source's chunk was due until it was at a viewer"},
	{Name: "baseline_delivery", Kind: measure.KindLatency, Help: "the same through a bare write loop"},
	{Name: "join", Kind: measure.KindLatency, Help: "from dialling until the first byte of the terminal"},
	{Name: "delivered_bytes", Kind: measure.KindCounter, Unit: "B", Help: "terminal bytes received by viewers"},
	{Name: "relay_cpu_per_chunk", Unit: "s", Headline: true, LowerIsBetter: true, Baseline: "baseline_cpu_per_chunk",
		Help: "processor time of the relay for each chunk delivered"},
	{Name: "memory_per_viewer", Unit: "B", Headline: true, LowerIsBetter: true, Help: "growth of the relay's memory by viewers"},
	{Name: "lost_bytes", Kind: measure.KindCounter, Unit: "B", MustBeZero: true, LowerIsBetter: true, Help: "written by the source, never received"},
	{Name: "corrupt_streams", Kind: measure.KindCounter, MustBeZero: true, LowerIsBetter: true, Help: "viewers whose SHA-256 differs from the source's"},
}

// A fake makes up the figures of a run from a seed.
type fake struct {
	rng    *rand.Rand
	rec    *measure.Recorder
	out    *measure.Collection
	second int
	cpu    map[string]float64
}

// fakeRun makes up a run of blocks of three seconds with a restart in between.
// A long one samples less in each second.
func fakeRun(seed uint64, blocks, blockSeconds, perSecond int, slow float64) *measure.Result {
	f := &fake{
		rng: rand.New(rand.NewPCG(seed, 1)), rec: measure.NewRecorder(),
		out: measure.NewCollection(metrics), cpu: make(map[string]float64),
	}
	f.rec.Begin(start)
	f.rec.Counter("lost_bytes")
	f.rec.Counter("corrupt_streams")
	killed := blocks*2/3*2*blockSeconds + 1
	f.out.Event(start.Add(time.Duration(killed)*time.Second), "relay 1 killed")
	f.out.Event(start.Add(time.Duration(killed)*time.Second+time.Second*4/5), "relay 1 is ready again")
	for b := range blocks {
		for range blockSeconds {
			f.tick("fairlead", "delivery", b, perSecond, slow, f.second >= killed && f.second < killed+1)
		}
		for range blockSeconds {
			f.tick("bare write loop", "baseline_delivery", b, perSecond, 0.7, false)
		}
		f.out.BlockAt("relay_cpu_per_chunk", b, 6.1e-6*slow*(1+0.04*f.rng.NormFloat64()))
		f.out.BlockAt("baseline_cpu_per_chunk", b, 4.4e-6*(1+0.03*f.rng.NormFloat64()))
	}
	f.out.Value("memory_per_viewer", 23.4*1024)
	f.out.Fail("join refused", errors.New("attach: status 429: too many joins"))
	f.out.Fail("join refused", errors.New("attach: status 429: too many joins"))
	f.out.Fail("read", errors.New("read frame: connection reset by peer <script>alert(1)</script>"))
	f.out.Note("one relay was restarted while the run was going on")
	return f.out.Result(measure.Info{
		Scenario: "fanout", Summary: "One terminal, 1,000 viewers: how long output takes to reach them, beside a bare write loop.",
		Command:  []string{"loadtest", "run", "fanout", "--local", "--viewers", "1000", "--slo", "lost_bytes==0", "--slo", "delivery_p99<250ms"},
		Revision: "ffccf84d2a61 (modified)", Target: "a stack of its own on this machine",
		Parameters: []measure.Parameter{{Name: "viewers", Value: "1000"}, {Name: "rate", Value: "10 chunks/s"}, {Name: "chunk", Value: "512 B"}, {Name: "blocks", Value: "9"}, {Name: "seed", Value: "1"}},
		Machine:    measure.Machine{Model: "AMD EPYC 7B13", Cores: 2, MemoryBytes: 24 << 30, Kernel: "6.6.87", System: "linux/amd64", Go: "go1.26.0", Load: 0.31},
		Start:      start, End: start.Add(time.Duration(f.second) * time.Second),
	})
}

// tick makes up one second.
func (f *fake) tick(phase, latency string, block, n int, slow float64, stall bool) {
	at := start.Add(time.Duration(f.second) * time.Second)
	l := f.rec.Latency(latency)
	for i := range n {
		ms := slow * 1.6 * math.Exp(0.35*f.rng.NormFloat64())
		if f.rng.IntN(150) == 0 {
			ms += 6 * f.rng.ExpFloat64()
		}
		if stall {
			ms += max(0, 820-float64(i)*1000/float64(n))
		}
		l.RecordDuration(at, time.Duration(ms*float64(time.Millisecond)))
	}
	f.rec.Latency(measure.LagName).RecordDuration(at, time.Duration((60+20*f.rng.ExpFloat64())*float64(time.Microsecond)))
	if f.second == 0 {
		for range 1000 {
			f.rec.Latency("join").RecordDuration(at, time.Duration((20+9*f.rng.ExpFloat64())*float64(time.Millisecond)))
		}
	}
	f.rec.Counter("delivered_bytes").Add(int64(10 * 512 * 1000))
	s := f.rec.Snapshot()
	s.From, s.To = at, at.Add(time.Second)
	f.out.Merge(phase, block, s)
	for i, name := range []string{"relay 1", "sandbox-agent", "controlplane", "generator 1", "generator 2", "generator 3"} {
		share := []float64{0.42, 0.11, 0.02, 0.21, 0.2, 0.22}[i]
		if phase != "fairlead" && i < 3 {
			share /= 8
		}
		f.cpu[name] += share * (0.9 + 0.2*f.rng.Float64())
		f.out.Resource(name, at, measure.Resource{
			CPUSeconds: f.cpu[name], RSSBytes: int64([]float64{48, 31, 44, 70, 71, 69}[i] * (1 << 20) * (1 + 0.01*f.rng.Float64() + 0.02*math.Log1p(float64(f.second)))),
			Goroutines: []int{3400, 60, 80, 1020, 1020, 1020}[i] + f.rng.IntN(9), FDs: []int{1040, 22, 30, 345, 345, 345}[i],
			HeapBytes: int64([]float64{21, 9, 14, 0, 0, 0}[i] * (1 << 20) * (1 + 0.3*f.rng.Float64())),
		})
	}
	f.second++
}

// judged returns r with the verdict on some bounds.
func judged(t *testing.T, r *measure.Result, exprs ...string) *measure.Result {
	t.Helper()
	var slos []measure.SLO
	for _, e := range exprs {
		s, err := measure.ParseSLO(e)
		if err != nil {
			t.Fatal(err)
		}
		slos = append(slos, s)
	}
	r.Verdicts = measure.Judge(r, slos)
	return r
}

// TestWrite writes the made-up reports where -write says.
func TestWrite(t *testing.T) {
	if *write == "" {
		t.Skip("-write names no directory")
	}
	pass := judged(t, fakeRun(1, 9, 3, 4000, 1), "lost_bytes==0", "delivery_p99<250ms", "delivery_p50_ratio<2")
	bad := judged(t, fakeRun(2, 9, 3, 2000, 9), "lost_bytes==0", "delivery_p99<20ms", "delivery_p50<14.5ms", "memory_per_viewer<=20KiB")
	bad.Generator.Saturated, bad.Generator.Why = true, []string{"generator 2 used 97 % of the 1 cores it may have"}
	soak := judged(t, fakeRun(3, 120, 60, 20, 1), "lost_bytes==0")
	for name, r := range map[string]*measure.Result{"pass": pass, "fail": bad, "soak": soak} {
		f, err := os.Create(filepath.Join(*write, name+".html"))
		if err != nil {
			t.Fatal(err)
		}
		if err := report.HTML(f, r); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := report.Text(os.Stdout, r, report.TextOptions{Files: []string{"loadtest-reports/" + name + ".html"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.Compare(os.Stdout, pass, bad, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
}
