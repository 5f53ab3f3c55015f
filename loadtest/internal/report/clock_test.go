package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/report"
)

// apart returns a made-up run whose delivery is timed by clocks that may be 100
// ms apart, with the verdict on some bounds.
func apart(t *testing.T, exprs ...string) *measure.Result {
	t.Helper()
	r := short(1, 1)
	r.ClockError = 0.1
	for i := range r.Figures {
		f := &r.Figures[i]
		f.CrossesClocks = f.Metric == "delivery" && !strings.HasSuffix(f.Name, "_count")
	}
	return judged(t, r, exprs...)
}

func text(t *testing.T, r *measure.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Text(&b, r, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What the clocks leave open is told as neither held nor broken, and every figure
// that they may falsify says by how much.
func TestUndecidedByClock(t *testing.T) {
	r := apart(t, "lost_bytes==0", "delivery_p50<50ms")
	said, page := text(t, r), render(t, r)
	inspect(t, page)
	for _, want := range []string{"by the clock", "± 100 ms", "undecided by clock: ", "\nUNDECIDED BY CLOCK  delivery_p50<50ms"} {
		if !strings.Contains(said, want) {
			t.Errorf("the text does not say %q:\n%s", want, said)
		}
	}
	for _, want := range []string{"<title>fanout: Undecided by clock", "± 100 ms by the clock", `class="verdict undecided"`, "leaves bounds open"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, bad := range []string{"PASS", "FAIL"} {
		if strings.Contains(said, bad) {
			t.Errorf("the text says %s:\n%s", bad, said)
		}
	}
	if strings.Contains(page, "Every bound holds") {
		t.Error("the page says that every bound holds")
	}
}

// One bound that is broken breaks the run, whatever the clocks leave open.
func TestBrokenBesideTheClock(t *testing.T) {
	r := apart(t, "delivery_p50<50ms", "memory_per_viewer<1B")
	if said := text(t, r); !strings.Contains(said, "\nFAIL  ") || strings.Contains(said, "UNDECIDED") {
		t.Errorf("the text says\n%s", said)
	}
	page := render(t, r)
	if !strings.Contains(page, `class="verdict fail"`) || !strings.Contains(page, "Not every bound holds.") {
		t.Error("the page doesn't say that it fails")
	}
}

// A figure that crosses no clock, and one clock for all, are told as ever.
func TestOneClockSaysNothing(t *testing.T) {
	r := apart(t)
	r.ClockError = 0
	if said, page := text(t, r), render(t, r); strings.Contains(said, "by the clock") || strings.Contains(page, "by the clock") {
		t.Errorf("one clock may be wrong:\n%s", said)
	}
}

// A comparison says how far clocks are apart.
func TestCompareSaysClocks(t *testing.T) {
	var b bytes.Buffer
	if err := report.Compare(&b, short(1, 1), apart(t), report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "the clocks of B are known to agree within ± 100 ms") || strings.Contains(b.String(), "clocks of A") {
		t.Errorf("the comparison says\n%s", b.String())
	}
}
