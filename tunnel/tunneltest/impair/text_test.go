package impair

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Profile{
		"":     {},
		"none": {},
		"delay=25ms,jitter=5ms,rate=20mbit,queue=256KiB,loss=2%,duplicate=1%,reorder=5%,hold=3ms": Both(Path{
			Delay: 25 * ms, Jitter: 5 * ms, Rate: 20e6, Queue: 256 << 10, Loss: 0.02, Duplicate: 0.01, Reorder: 0.05, Hold: 3 * ms,
		}),
		"up.delay=1s, down.rate=1.5mbit": {Up: Path{Delay: time.Second}, Down: Path{Rate: 1_500_000}},
		"loss=0.1,up.loss=0%":            {Down: Path{Loss: 0.1}},
		"up.loss=1%,loss=7%":             Both(Path{Loss: 0.07}),
		"rate=1kbit,queue=1B":            Both(Path{Rate: 1000, Queue: 1}),
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"delay":              "not key=value",
		"latency=1ms":        "unknown key",
		"both.delay=1ms":     "unknown key",
		"delay=5":            "missing unit",
		"delay=-1ms":         "between 0 and 10s",
		"delay=11s":          "between 0 and 10s",
		"jitter=1ms":         "jitter of 1ms is not between 0 and the delay",
		"rate=20":            "needs a unit: gbit, mbit, kbit, bit",
		"rate=0.0001kbit":    "not a whole number of bit",
		"rate=1bit":          "not between",
		"rate=NaNbit":        "not a whole number",
		"queue=1GiB":         "not a whole number", // "1Gi" B
		"queue=65MiB":        "not between",
		"loss=2":             "not a part",
		"loss=101%":          "not a part",
		"loss=NaN":           "not a part",
		"loss=x%":            "neither a percentage nor a fraction",
		"up.reorder=-1%":     "up: -0.01 is not a part",
		"down.hold=1h":       "down: a hold",
		"delay=1ms,,loss=1%": "not key=value",
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestString(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "none",
		"up.delay=25ms,down.delay=25ms":  "delay=25ms",
		"loss=7%,up.rate=1.5mbit":        "up.rate=1500kbit,loss=7%",
		"down.queue=1024B,duplicate=0.1": "down.queue=1KiB,duplicate=10%",
	} {
		p, err := Parse(text)
		must(t, err)
		if p.String() != want {
			t.Errorf("%q is written as %q", text, p)
		}
	}
}

func TestProfileAsJSON(t *testing.T) {
	want := Both(Path{Delay: ms, Loss: 0.5})
	data, err := json.Marshal(want)
	must(t, err)
	var got Profile
	must(t, json.Unmarshal(data, &got))
	if got != want || string(data) != `"delay=1ms,loss=50%"` {
		t.Errorf("%s becomes %+v", data, got)
	}
	if json.Unmarshal([]byte(`"x=y"`), &got) == nil {
		t.Error("an unknown key was read")
	}
}

// FuzzParse: what is read is within bounds, and what is written is read as the
// same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"none", "delay=25ms,jitter=5ms,rate=20mbit,queue=256KiB,loss=2%", "up.duplicate=0.017,down.reorder=33.3%", "hold=1us,rate=1.5gbit",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(p.String())
		if err != nil || again != p {
			t.Fatalf("%q is written as %q and read as %+v, not %+v: %v", text, p, again, p, err)
		}
	})
}
