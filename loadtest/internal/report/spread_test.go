package report_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/report"
)

// spreadRun has the figure few with some blocks and many with nine.
func spreadRun(few int) *measure.Result {
	out := measure.NewCollection([]measure.Metric{{Name: "few", Headline: true}, {Name: "many", Headline: true}})
	for i := range few {
		out.BlockAt("few", i, float64(i+1))
	}
	for i := range 9 {
		out.BlockAt("many", i, float64(i+1))
	}
	return out.Result(measure.Info{Start: start, End: start})
}

// Fewer than six blocks have no interval with a confidence of 95 %, and nothing
// that is shown or written says so.
func TestFewBlocksHaveTheirRange(t *testing.T) {
	for few, want := range map[int]bool{3: true, 5: true, 6: false, 9: false} {
		r := spreadRun(few)
		if f := r.Figure("few"); f.Ranges() > 0 != want || f.Confidence > 0 == want {
			t.Errorf("%d blocks: range of %d, confidence %v", few, f.Ranges(), f.Confidence)
		}
		var text, compared bytes.Buffer
		if err := report.Text(&text, r, report.TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := report.Compare(&compared, r, r, report.TextOptions{}); err != nil {
			t.Fatal(err)
		}
		for name, shown := range map[string]string{"text": text.String(), "comparison": compared.String(), "page": render(t, r)} {
			if strings.Contains(shown, fmt.Sprintf("range of %d blocks", few)) != want || !strings.Contains(shown, "95 % interval") {
				t.Errorf("%d blocks beside nine: the %s says\n%s", few, name, shown[:min(len(shown), 2000)])
			}
		}
	}
}

// When there are ranges only, the heading says it once.
func TestRangesHaveTheirHeading(t *testing.T) {
	r := spreadRun(3)
	r.Figures = r.Figures[:1]
	var text bytes.Buffer
	if err := report.Text(&text, r, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); strings.Count(got, "range of 3 blocks") != 1 || strings.Contains(got, "1 … 3: ") || !strings.Contains(got, "1 … 3") {
		t.Errorf("the text says\n%s", got)
	}
}
