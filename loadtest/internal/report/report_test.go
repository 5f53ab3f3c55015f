package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"golang.org/x/net/html"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/report"
)

// short is a made-up run that is quickly made.
func short(seed uint64, slow float64) *measure.Result { return fakeRun(seed, 4, 3, 300, slow) }

func render(t *testing.T, r *measure.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// inspect walks over a page: it must be well formed, need nothing from
// elsewhere, and name what it draws.
func inspect(t *testing.T, page string) {
	t.Helper()
	if strings.Contains(page, "ZgotmplZ") {
		t.Error("the template refused a value")
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "+Inf") {
		t.Error("the page holds a number that is none")
	}
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	var refs []string
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			switch n.Data {
			case "script", "link", "iframe", "object", "embed", "img", "base", "form":
				t.Errorf("the page has a %s element", n.Data)
			}
			label := false
			for _, a := range n.Attr {
				switch {
				case a.Key == "id" && ids[a.Val]:
					t.Errorf("two elements are called %q", a.Val)
				case a.Key == "id":
					ids[a.Val] = true
				case a.Key == "aria-labelledby":
					label = true
					refs = append(refs, strings.Fields(a.Val)...)
				case a.Key == "href":
					refs = append(refs, strings.TrimPrefix(a.Val, "#"))
				case a.Key == "src" || strings.HasPrefix(a.Key, "on"):
					t.Errorf("%s has the attribute %s", n.Data, a.Key)
				case a.Key == "aria-label" || a.Key == "aria-hidden":
					label = true
				}
			}
			if n.Data == "svg" && !label {
				t.Error("a drawing has no name")
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(root)
	for _, id := range refs {
		if !ids[id] {
			t.Errorf("nothing is called %q, which something refers to", id)
		}
	}
	if strings.Contains(page, "url(") || strings.Contains(page, "@import") {
		t.Error("the style sheet wants something from elsewhere")
	}
}

func TestHTML(t *testing.T) {
	page := render(t, judged(t, short(1, 1), "lost_bytes==0", "delivery_p99<9s", "delivery_p50_ratio<100"))
	inspect(t, page)
	for _, want := range []string{
		"Every bound holds", "delivery_p99&lt;9s", "ffccf84d2a61", "loadtest run fanout --local",
		"relay 1 killed", "AMD EPYC", "bare write loop", "&lt;script&gt;alert(1)&lt;/script&gt;", "Load at the start",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, bad := range []string{"generator was saturated", "Fail<"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page says %q", bad)
		}
	}
}

func TestHTMLSaysWhatIsWrong(t *testing.T) {
	r := judged(t, short(1, 1), "delivery_p99<1us")
	r.Generator.Saturated, r.Generator.Why = true, []string{"generator 2 was busy"}
	r.Info.Interrupted = true
	page := render(t, r)
	inspect(t, page)
	for _, want := range []string{"generator was saturated", "generator 2 was busy", "the bound is broken", "interrupted", "Fail"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestHTMLOfLittle shows results that hold hardly anything.
func TestHTMLOfLittle(t *testing.T) {
	inspect(t, render(t, &measure.Result{}))
	c := measure.NewCollection(metrics)
	inspect(t, render(t, c.Result(measure.Info{Start: start, End: start})))
	one := 1.0
	inspect(t, render(t, &measure.Result{
		Figures: []measure.Figure{{Metric: "a b", Name: "a b_p99", Unit: "<b>", Value: &one, Headline: true, Median: &one, Blocks: []float64{1, 1}}},
		Latencies: []measure.Series{{Name: "a b", Points: []measure.Point{
			{Second: -5, P50: 0, P99: 0, Max: 0}, {Second: 1 << 40, P50: 1e300}, {Second: 3}}}},
		Counters:  []measure.Rate{{Name: `"><script>`, Unit: `"onload="x`, Points: []measure.RatePoint{{Second: 0, Value: -3}}}},
		Processes: []measure.Process{{Name: "p"}, {Name: "q", Points: []measure.ResourcePoint{{Seconds: -1, CPU: -1, RSSBytes: 1}}}},
		Events:    []measure.Event{{Seconds: -7, Text: "</style>"}},
		Phases:    []measure.Phase{{Name: "x", Start: -3, End: 1e12}, {Name: "y", Start: 5, End: 2}},
	}))
}

// TestHTMLOfALongRun has four hours of seconds: the page stays small.
func TestHTMLOfALongRun(t *testing.T) {
	r := short(1, 1)
	const hours = 4 * 3600
	r.Info.End = r.Info.Start.Add(hours * time.Second)
	for i := range r.Latencies {
		r.Latencies[i].Points = nil
		for s := range int64(hours) {
			v := 0.001 * float64(s%977+1)
			r.Latencies[i].Points = append(r.Latencies[i].Points, measure.Point{Second: s, Count: 1, P50: v, P90: v, P99: 2 * v, Max: 3 * v})
		}
	}
	for i := range r.Processes {
		r.Processes[i].Points = nil
		for s := range hours {
			r.Processes[i].Points = append(r.Processes[i].Points, measure.ResourcePoint{
				Seconds: float64(s), CPU: float64(s % 7), RSSBytes: int64(1<<20 + s), HeapBytes: int64(s), FDs: s, Goroutines: s})
		}
	}
	for i := range 5000 {
		r.Phases = append(r.Phases, measure.Phase{Name: fmt.Sprint("phase ", i%2), Block: i, Start: 3 * float64(i), End: 3 * float64(i+1)})
		r.Events = append(r.Events, measure.Event{Seconds: 3 * float64(i), Text: "killed"})
	}
	page := render(t, r)
	inspect(t, page)
	if len(page) > 2<<20 {
		t.Errorf("the page has %d bytes, want less than 2 MiB", len(page))
	}
}

func TestText(t *testing.T) {
	r := judged(t, short(1, 1), "lost_bytes==0", "delivery_p99<1us")
	var b bytes.Buffer
	if err := report.Text(&b, r, report.TextOptions{Files: []string{"reports/fanout.html"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"delivery_p99", "range of 4 blocks", "ratio", "lost_bytes==0", "holds", "broken: the bound is broken",
		"FAIL  delivery_p99<1us", "report: reports/fanout.html", "too many joins", "generator: 3 processes",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text does not say %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("the text has colours that nobody asked for")
	}
	r.Verdicts, r.Info.Scenario = nil, "fan\x1b[2Jout"
	b.Reset()
	if err := report.Text(&b, r, report.TextOptions{Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[32mPASS") || strings.Contains(b.String(), "\x1b[2J") {
		t.Errorf("text in colour: %q", b.String())
	}
}

func TestCompareText(t *testing.T) {
	a, b := short(1, 1), short(2, 3)
	b.Info.Parameters[0].Value = "2000"
	b.Info.Machine.Cores = 8
	b.Generator.Saturated, b.Generator.Why = true, []string{"generator 1 was late"}
	var out bytes.Buffer
	if err := report.Compare(&out, a, b, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"delivery_p50", "worse", "within the spread", "the machines differ", "viewers differs: 1000 and 2000", "the generator of B was saturated"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the comparison does not say %q:\n%s", want, out.String())
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := report.JSON(&b, short(1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := measure.Decode(&b); err != nil {
		t.Fatal(err)
	}
}

func TestWriteErrors(t *testing.T) {
	r := short(1, 1)
	broken := brokenWriter{}
	for name, err := range map[string]error{
		"HTML": report.HTML(broken, r), "Text": report.Text(broken, r, report.TextOptions{}),
		"JSON": report.JSON(broken, r), "Compare": report.Compare(broken, r, r, report.TextOptions{}),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s = %v, want the writer's error", name, err)
		}
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// lines is a buffer that may be written to concurrently.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// live tells made-up figures of the moment.
func live(time.Time) measure.Live {
	p50, p99 := 0.0018, 0.025
	return measure.Live{Latency: "echo", P50: &p50, P99: &p99, Counter: "bytes", Unit: "B", Rate: 1 << 20, Failures: 3}
}

func TestProgressPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(lines)
		p := report.NewProgress(out, report.Auto, live)
		p.Phase("fairlead", 0, 12)
		time.Sleep(time.Second / 2)
		for i := range 12 {
			p.Phase("fairlead", float64(i+1), 12)
			time.Sleep(time.Second)
		}
		p.Phase("baseline", 0, 0)
		p.Phase("baseline again", 0, 0) // too soon after the last line
		if _, err := io.WriteString(p, "a log line\n"); err != nil {
			t.Error(err)
		}
		p.Close()
		p.Close()
		p.Phase("late", 1, 1)
		time.Sleep(time.Minute)
		want := "00:00  fairlead  0 %  echo p50 1.80 ms p99 25 ms  1 MiB/s  failures 3\n" +
			"00:05  fairlead  42 %  echo p50 1.80 ms p99 25 ms  1 MiB/s  failures 3\n" +
			"00:10  fairlead  83 %  echo p50 1.80 ms p99 25 ms  1 MiB/s  failures 3\n" +
			"00:13  baseline  echo p50 1.80 ms p99 25 ms  1 MiB/s  failures 3\n" +
			"a log line\n"
		if got := out.String(); got != want {
			t.Errorf("progress:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestProgressNone(t *testing.T) {
	out := new(lines)
	p := report.NewProgress(out, report.None, nil)
	p.Phase("x", 1, 2)
	p.Close()
	if out.String() != "" {
		t.Errorf("printed %q", out.String())
	}
}

// TestProgressBar draws on a real terminal: when Close returns the bar is gone,
// and nothing is drawn over what follows.
func TestProgressBar(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() { // It ends when the terminal is closed, waited for below.
		b, _ := io.ReadAll(screen)
		got <- string(b)
	}()
	if report.Color(tty) || !report.Terminal(tty) {
		t.Error("NO_COLOR is not heard")
	}
	drawn := make(chan struct{}, 100)
	p := report.NewProgress(tty, report.Auto, func(now time.Time) measure.Live {
		select {
		case drawn <- struct{}{}:
		default:
		}
		return live(now)
	})
	p.Phase("fairlead 3/9", 1, 2)
	for range 2 {
		<-drawn
	}
	if _, err := io.WriteString(p, "a log line\n"); err != nil {
		t.Error(err)
	}
	for range 2 {
		<-drawn
	}
	p.Close()
	p.Phase("late", 1, 1)
	if _, err := io.WriteString(p, "the table\n"); err != nil {
		t.Error(err)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	text := <-got
	if err := screen.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	for _, want := range []string{"fairlead 3/9", "50 %", "━━━", "echo p50 1.80 ms p99 25 ms", "a log line"} {
		if !strings.Contains(text, want) {
			t.Errorf("the terminal does not show %q: %q", want, text)
		}
	}
	last := text[strings.LastIndex(text, "\x1b"):]
	if !strings.HasPrefix(last, "\x1b[J") && !strings.HasPrefix(last, "\x1b[2A\x1b[J") || !strings.HasSuffix(last, "the table\r\n") || strings.Contains(last, "fairlead") {
		t.Errorf("behind the bar stands %q", last)
	}
}

func TestParseMode(t *testing.T) {
	for _, name := range []string{"auto", "bar", "plain", "none"} {
		if m, err := report.ParseMode(name); err != nil || string(m) != name {
			t.Errorf("ParseMode(%q) = %q, %v", name, m, err)
		}
	}
	if _, err := report.ParseMode("loud"); err == nil {
		t.Error(`ParseMode("loud") = nil error`)
	}
}
