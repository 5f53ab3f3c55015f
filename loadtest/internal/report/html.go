package report

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

var (
	//go:embed report.gohtml
	pageText string
	//go:embed report.css
	style string

	pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
		"words": func(name string) []string { return strings.Split(name, "_") },
		// The style sheet is ours, so it needs no escaping.
		"style":   func() template.CSS { return template.CSS(style) },
		"percent": func(v float64) string { return fmt.Sprintf("%.2f", v) },
		"above":   func(v float64) string { return fmt.Sprintf("%.2f", 100-v) },
	}).Parse(pageText))
)

// HTML writes the result as one page that needs nothing else: no script, no
// other file, no network. Long runs are put together to a few hundred points.
func HTML(w io.Writer, r *measure.Result) error {
	p, err := newPage(r)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	b := bufio.NewWriter(w)
	if err := pageTemplate.Execute(b, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// minPoints is how many points a plot over time takes to say anything.
const minPoints = 3

// A page is what the template shows.
type page struct {
	Title     string
	Info      measure.Info
	Facts     []measure.Parameter
	State     string // "pass", "undecided", "fail"
	Word      string
	Sentence  string // what the state means
	Why       []string
	Bounds    []bound
	Cards     []card
	Groups    []group // the headline figures
	Others    []group
	Latencies []section
	Load      []chart
	Resources []chart
	Phases    []phaseName
	Events    []event
	Failures  []measure.Failure
	Generator generatorView
	Processes grid
	Command   string
	Machine   []measure.Parameter
	Notes     []string
}

// A section shows one latency.
type section struct {
	Name, Help string
	Time       []chart // over time: one, or none when there is too little
	Spread     []chart // of the samples
}

// A phaseName is how a phase is shaded.
type phaseName struct{ Name, Class string }

// An event is a row of the list that explains the marks.
type event struct {
	N    int // 0: not drawn
	Time string
	Text string
}

// A bound is a row of the verdict.
type bound struct {
	Text, Measured, State, Word string
}

// A generatorView is what the page says of the load itself.
type generatorView struct {
	measure.Generator
	Share, Lag string
	Charts     []chart
}

func newPage(r *measure.Result) (*page, error) {
	p := &page{
		Title: r.Info.Scenario, Info: r.Info, Notes: r.Notes, Failures: r.Failures,
		Facts: facts(r.Info), Machine: machine(r.Info.Machine), Command: shell(r.Info.Command),
	}
	p.judge(r)
	for _, v := range r.Verdicts {
		p.Bounds = append(p.Bounds, boundOf(r, v))
	}
	p.Cards = cards(r)
	p.Groups, p.Others = groups(r)

	plot := newPlotter(r)
	for _, name := range plot.latencies() {
		s := plot.series(name)
		v := section{Name: name, Help: s.Help}
		if len(s.Points) >= minPoints {
			v.Time = []chart{plot.latency(name)}
		}
		var err error
		if v.Spread, err = plot.distributions(name); err != nil {
			return nil, err
		}
		p.Latencies = append(p.Latencies, v)
	}
	p.Load, p.Resources = plot.throughput(), plot.processes()
	for i, name := range plot.names {
		if len(plot.names) > 1 {
			class := "shade0"
			if i > 0 {
				class = shadeClass(i)
			}
			p.Phases = append(p.Phases, phaseName{name, class})
		}
	}
	for i, e := range r.Events {
		n := i + 1
		if n > len(plot.marks) {
			n = 0
		}
		p.Events = append(p.Events, event{n, at(e.Seconds), e.Text})
	}
	p.Generator = generatorView{Generator: r.Generator, Share: number(r.Generator.CPU*100) + " %", Lag: optional(r.Generator.LagP99, "s")}
	if s := plot.series(measure.LagName); s != nil && len(s.Points) >= minPoints {
		p.Generator.Charts = []chart{plot.latency(measure.LagName)}
	}
	p.Processes = processTable(r)
	p.name()
	return p, nil
}

// judge says what the verdicts come to.
func (p *page) judge(r *measure.Result) {
	ok, _ := r.OK()
	switch {
	case ok && len(r.Verdicts) == 0:
		p.State, p.Word, p.Sentence = "pass", "Pass", "The run came to its end. No bounds were set."
	case ok:
		p.State, p.Word, p.Sentence = "pass", "Pass", "Every bound holds."
	case r.OnlyByClock():
		p.State, p.Word, p.Sentence = "undecided", "Undecided by clock", "Nothing is broken, but the error of the clocks leaves bounds open."
	default:
		p.State, p.Word, p.Sentence = "fail", "Fail", "Not every bound holds."
		p.Why = r.Objections()
	}
}

// name gives each chart a name of its own, which what describes it refers to.
func (p *page) name() {
	all := [][]chart{p.Load, p.Resources, p.Generator.Charts}
	for _, s := range p.Latencies {
		all = append(all, s.Time, s.Spread)
	}
	n := 0
	for _, charts := range all {
		for i := range charts {
			n++
			charts[i].ID = fmt.Sprintf("plot%d", n)
		}
	}
}

// boundOf returns the row of a verdict.
func boundOf(r *measure.Result, v measure.Verdict) bound {
	b := bound{Text: v.Bound, Measured: none, State: "fail", Word: v.Why}
	if f := r.Figure(v.Metric); f != nil {
		b.Measured = optional(v.Value, f.Unit) + saidByClock(r, f)
		switch {
		case f.Ranges() > 0:
			b.Measured += ", " + ranged(between(f.Interval, f.Unit), f.Ranges())
		case f.Interval != nil:
			b.Measured += ", blocks " + between(f.Interval, f.Unit)
		}
	}
	switch {
	case v.OK:
		b.State, b.Word = "pass", "holds"
	case v.Undecided, v.ByClock:
		b.State = "undecided"
	}
	return b
}

// at formats a moment of the run.
func at(v float64) string {
	if v < 60 {
		return format(v, "s")
	}
	return clock(time.Duration(v * float64(time.Second)))
}

// facts returns what stands below the title.
func facts(i measure.Info) []measure.Parameter {
	all := []measure.Parameter{
		{Name: "Started", Value: i.Start.UTC().Format("2 January 2006, 15:04:05 UTC")},
		{Name: "Took", Value: elapsed(i.End.Sub(i.Start).Seconds())},
		{Name: "Against", Value: i.Target},
		{Name: "Revision", Value: i.Revision},
	}
	known := all[:0]
	for _, f := range all {
		if f.Value != "" {
			known = append(known, f)
		}
	}
	return known
}

// machine returns what is known of the machine.
func machine(m measure.Machine) []measure.Parameter {
	return []measure.Parameter{
		{Name: "Processor", Value: or(m.Model, "unknown")},
		{Name: "Cores", Value: fmt.Sprint(m.Cores)},
		{Name: "Memory", Value: format(float64(m.MemoryBytes), "B")},
		{Name: "Kernel", Value: or(m.Kernel, "unknown")},
		{Name: "System", Value: m.System},
		{Name: "Go", Value: m.Go},
		{Name: "Load at the start", Value: number(m.Load)},
	}
}

// shell returns words as a shell takes them.
func shell(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		plain := w != "" && !strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("-_./:,=@%+", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		})
		if quoted[i] = w; !plain {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
