package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A Mode says how progress is shown.
type Mode string

// The modes.
const (
	Auto  Mode = "auto"  // Bar on a terminal, Plain elsewhere
	Bar   Mode = "bar"   // a bar that is drawn again and again
	Plain Mode = "plain" // a line now and then
	None  Mode = "none"  // nothing
)

// ParseMode reads the name of a mode.
func ParseMode(name string) (Mode, error) {
	switch m := Mode(name); m {
	case Auto, Bar, Plain, None:
		return m, nil
	}
	return "", fmt.Errorf("progress %q is none of auto, bar, plain, none", name)
}

const (
	// plainEvery is the time between two plain lines of one phase.
	plainEvery = 5 * time.Second
	// plainLeast is the time between two plain lines, whatever begins.
	plainLeast = time.Second
	// drawEvery is the time between two drawings of the bar.
	drawEvery = 200 * time.Millisecond
)

// Terminal says whether w is a terminal that can move its cursor.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && cwriter.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Color says whether colours may be written to w: it is a terminal, and NO_COLOR
// is not set.
func Color(w io.Writer) bool { return Terminal(w) && os.Getenv("NO_COLOR") == "" }

// A Progress shows how far a run is. Its methods may be called concurrently.
type Progress struct {
	// Static after construction.
	out   io.Writer
	live  func(now time.Time) measure.Live
	color bool
	start time.Time
	bars  *mpb.Progress // nil unless there is a bar
	bar   *mpb.Bar
	stop  chan struct{} // closed by Close; nil unless lines are printed
	done  chan struct{} // closed when the printing has ended

	// Guarded by mu.
	mu          sync.Mutex
	phase       string
	part, whole float64
	printed     time.Time // the last plain line
	closed      bool
}

// NewProgress begins to show progress on out. What is measured at the moment is
// told by live, which may be nil. Close must be called before anything else is
// written to out, except through [Progress.Write].
func NewProgress(out io.Writer, mode Mode, live func(now time.Time) measure.Live) *Progress {
	p := &Progress{out: out, live: live, color: Color(out), start: time.Now()}
	if mode == Auto {
		mode = Plain
		if Terminal(out) {
			mode = Bar
		}
	}
	switch mode {
	case Bar:
		p.bars = mpb.New(mpb.WithOutput(out), mpb.WithAutoRefresh(), mpb.WithRefreshRate(drawEvery))
		p.bar = p.bars.MustAdd(1, mpb.BarFillerFunc(p.fill),
			mpb.PrependDecorators(decor.Any(p.before)),
			mpb.AppendDecorators(decor.Any(p.behind)),
			mpb.BarExtender(mpb.BarFillerFunc(p.below), false),
			mpb.BarFillerTrim())
	case Plain:
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		go p.lines() // Close waits for it.
	}
	return p
}

// Phase says what is done now, and how much of it. A total of 0 is not known.
func (p *Progress) Phase(phase string, done, total float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begins := phase != p.phase
	p.phase, p.part, p.whole = clean(phase), done, total
	if begins && p.stop != nil && !p.closed && time.Since(p.printed) >= plainLeast {
		p.print()
	}
}

// Write writes lines above the bar, for a log that goes to the same place.
func (p *Progress) Write(b []byte) (int, error) {
	if p.bars != nil {
		if n, err := p.bars.Write(b); !errors.Is(err, mpb.ErrDone) {
			return n, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// Close removes the bar. After it nothing is written but by Write.
func (p *Progress) Close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return
	}
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
	if p.stop != nil {
		close(p.stop)
		<-p.done
	}
}

// lines prints a line now and then until Close.
func (p *Progress) lines() {
	defer close(p.done)
	tick := time.NewTicker(plainEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		if !p.closed && p.phase != "" {
			p.print()
		}
		p.mu.Unlock()
	}
}

// print prints a plain line. The caller holds mu.
func (p *Progress) print() {
	p.printed = time.Now()
	parts := []string{clock(time.Since(p.start)), p.phase}
	if share, ok := p.share(); ok {
		parts = append(parts, fmt.Sprintf("%.0f %%", share*100))
	}
	parts = append(parts, p.now()...)
	// Nobody can be told that the place for telling is gone.
	_, _ = fmt.Fprintln(p.out, strings.Join(parts, "  "))
}

// share returns how much of the phase is done, 0 to 1. The caller holds mu.
func (p *Progress) share() (float64, bool) {
	if p.whole <= 0 {
		return 0, false
	}
	return min(max(p.part/p.whole, 0), 1), true
}

// now returns what is measured at the moment.
func (p *Progress) now() []string {
	if p.live == nil {
		return nil
	}
	l := p.live(time.Now())
	var parts []string
	if l.P50 != nil && l.P99 != nil {
		parts = append(parts, fmt.Sprintf("%s p50 %s p99 %s", l.Latency, format(*l.P50, "s"), format(*l.P99, "s")))
	}
	if l.Counter != "" {
		rate := format(l.Rate, "B/s")
		if l.Unit != "B" {
			rate = number(l.Rate) + " " + l.Counter + "/s"
		}
		parts = append(parts, rate)
	}
	return append(parts, fmt.Sprintf("failures %s", number(float64(l.Failures))))
}

// before returns what stands before the bar.
func (p *Progress) before(decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%s  %-16s ", clock(time.Since(p.start)), p.phase)
}

// behind returns what stands behind it.
func (p *Progress) behind(decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	share, ok := p.share()
	if !ok {
		return ""
	}
	return fmt.Sprintf(" %3.0f %%", share*100)
}

// maxBar bounds the bar's width in columns.
const maxBar = 48

// fill draws the bar itself.
func (p *Progress) fill(w io.Writer, s decor.Statistics) error {
	p.mu.Lock()
	share, ok := p.share()
	p.mu.Unlock()
	width := min(s.AvailableWidth, maxBar)
	if !ok || width < 4 {
		return nil
	}
	full := int(share * float64(width))
	_, err := io.WriteString(w, p.paint(green, strings.Repeat("━", full))+
		p.paint(faint, strings.Repeat("─", width-full)))
	return err
}

// below draws the line below the bar: what is measured at the moment.
func (p *Progress) below(w io.Writer, s decor.Statistics) error {
	text := []rune("       " + strings.Join(p.now(), "  "))
	text = text[:min(len(text), max(s.AvailableWidth-1, 0))]
	_, err := io.WriteString(w, string(text)+"\n")
	return err
}

func (p *Progress) paint(color, text string) string {
	return (&printer{color: p.color}).paint(color, text)
}

// clock formats the time since the start.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= time.Hour {
		return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	}
	return fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
