package measure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An SLO is a bound on a figure.
type SLO struct {
	Metric string
	Op     string  // < <= > >= == !=
	Number float64 // in Unit
	Unit   string  // "" stands for the figure's own
}

// maxExpr bounds an expression in bytes.
const maxExpr = 200

// operators, those first that begin with another one.
var operators = []string{"<=", ">=", "==", "!=", "<", ">"}

// A scale is what a unit stands for.
type scale struct {
	base   string // the unit of the figures that it fits
	factor float64
}

var scales = map[string]scale{
	"ns": {"s", 1e-9}, "us": {"s", 1e-6}, "µs": {"s", 1e-6}, "ms": {"s", 1e-3}, "s": {"s", 1}, "m": {"s", 60},
	"B": {"B", 1}, "KB": {"B", 1e3}, "MB": {"B", 1e6}, "GB": {"B", 1e9},
	"KiB": {"B", 1 << 10}, "MiB": {"B", 1 << 20}, "GiB": {"B", 1 << 30},
	"%": {"%", 1},
}

// ParseSLO reads NAME OP NUMBER[UNIT], as in "echo_p99<20ms" or "lost_bytes==0".
// Operators are < <= > >= == and !=, units ns us ms s m B KB KiB MB MiB GB GiB
// and %. A number without a unit is in the figure's own: seconds, bytes.
func ParseSLO(expr string) (SLO, error) {
	fail := func(why string) (SLO, error) {
		return SLO{}, fmt.Errorf("bound %q: %s", printable(expr), why)
	}
	if len(expr) > maxExpr {
		return fail("too long")
	}
	at := strings.IndexAny(expr, "<>=!")
	if at < 0 {
		return fail("has no operator (< <= > >= == !=)")
	}
	s := SLO{Metric: strings.TrimSpace(expr[:at])}
	rest := expr[at:]
	if i := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(rest, op) }); i >= 0 {
		s.Op = operators[i]
	} else {
		return fail("has no operator (< <= > >= == !=)")
	}
	if !isName(s.Metric) {
		return fail("must begin with the name of a metric")
	}
	number := strings.TrimSpace(rest[len(s.Op):])
	end := strings.LastIndexAny(number, "0123456789.") + 1
	s.Unit = strings.TrimSpace(number[end:])
	v, err := strconv.ParseFloat(number[:end], 64)
	if err != nil || !finite(v) || strings.ContainsAny(number[:end], "xXpP_") {
		return fail("needs a number behind the operator")
	}
	if _, ok := scales[s.Unit]; !ok && s.Unit != "" {
		return fail(fmt.Sprintf("unit %q is none of ns us ms s m B KB KiB MB MiB GB GiB %%", printable(s.Unit)))
	}
	s.Number = v
	return s, nil
}

// isName says whether text could be a figure's name.
func isName(text string) bool {
	for _, r := range text {
		if r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return text != ""
}

// String returns the expression; ParseSLO reads it.
func (s SLO) String() string {
	return s.Metric + s.Op + strconv.FormatFloat(s.Number, 'g', -1, 64) + s.Unit
}

// Check returns an error when the bound does not fit any of the metrics: a
// [NameError] when there is none of that name.
func (s SLO) Check(metrics []Metric) error {
	known := Figures(metrics)
	if !slices.Contains(known, s.Metric) {
		return &NameError{s.Metric, known}
	}
	for _, m := range complete(metrics) {
		if slices.Contains(m.figures(), s.Metric) {
			unit := m.Unit
			if m.Kind == KindLatency && strings.HasSuffix(s.Metric, "_count") {
				unit = ""
			}
			_, err := s.bound(unit)
			return err
		}
	}
	_, err := s.bound("") // a ratio
	return err
}

// bound returns the number in a figure's unit.
func (s SLO) bound(unit string) (float64, error) {
	if s.Unit == "" {
		return s.Number, nil
	}
	scale := scales[s.Unit]
	switch {
	case scale.base == unit, scale.base+"/s" == unit && scale.base == "B":
		return s.Number * scale.factor, nil
	case s.Unit == "%" && unit == "":
		return s.Number / 100, nil
	}
	if unit == "" {
		unit = "no unit"
	}
	return 0, fmt.Errorf("bound %s: %s is measured in %s", s, s.Metric, unit)
}

// holds compares v with a bound.
func holds(v float64, op string, bound float64) bool {
	switch op {
	case "<":
		return v < bound
	case "<=":
		return v <= bound
	case ">":
		return v > bound
	case ">=":
		return v >= bound
	case "==":
		return v == bound
	case "!=":
		return v != bound
	}
	return false
}

// Judge returns the verdict on each bound, and on those that go without saying:
// what must be 0 and is not. A bound on a figure that crosses clocks holds, or is
// broken, when it is so for every time by which the clocks may be apart; else it
// is undecided by clock. A figure without a value breaks its bound, so that
// forgetting to measure is not taken for success.
func Judge(result *Result, slos []SLO) []Verdict {
	verdicts := make([]Verdict, 0, len(slos))
	asked := make(map[string]bool)
	for _, s := range slos {
		verdicts = append(verdicts, judge(result, s))
		asked[s.Metric] = true
	}
	for _, f := range result.Figures {
		if !f.MustBeZero || asked[f.Name] {
			continue
		}
		v := judge(result, SLO{Metric: f.Name, Op: "==", Number: 0})
		if v.Asked = false; !v.OK {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

func judge(result *Result, s SLO) Verdict {
	v := Verdict{Bound: s.String(), Metric: s.Metric, Asked: true}
	f := result.Figure(s.Metric)
	if f == nil || f.Value == nil {
		v.Why = "nothing was measured"
		return v
	}
	v.Value = f.Value
	bound, err := s.bound(f.Unit)
	if err != nil {
		v.Why = err.Error()
		return v
	}
	below, above := result.ByClock(f)
	low, high := s.against(f, bound, -below), s.against(f, bound, above)
	inside := s.equality() && above > 0 && *f.Value-below <= bound && bound <= *f.Value+above
	switch {
	case low == whyStraddled || high == whyStraddled:
		v.Undecided, v.Why = true, whyStraddled
	case inside, (low == "") != (high == ""):
		v.ByClock, v.Why = true, result.whyByClock()
	default:
		v.OK, v.Why = low == "", low
	}
	return v
}

// What speaks against a figure.
const (
	whyStraddled = "the interval of the blocks straddles the bound: more blocks would tell"
	whyBroken    = "the bound is broken"
	whyMedian    = "the median of the blocks breaks the bound"
)

// against says what speaks against a figure if the clocks are so much apart that
// all of it is higher by shift; "" when the bound holds.
func (s SLO) against(f *Figure, bound, shift float64) string {
	at := func(x float64) float64 {
		if shift == 0 {
			return x
		}
		return max(0, x+shift) // no time is less
	}
	ok := holds(at(*f.Value), s.Op, bound)
	if f.Interval == nil || s.equality() {
		if !ok {
			return whyBroken
		}
		return ""
	}
	low, high := holds(at(f.Interval.Low), s.Op, bound), holds(at(f.Interval.High), s.Op, bound)
	switch {
	case low != high:
		return whyStraddled
	case !ok:
		return whyBroken
	case !low:
		return whyMedian
	}
	return ""
}

// equality says whether the bound is on one value.
func (s SLO) equality() bool { return s.Op == "==" || s.Op == "!=" }

// OK says whether nothing speaks against a judged result: no bound is broken,
// the run came to its end, and the generators kept up. Why says what does.
func (r *Result) OK() (ok bool, why []string) {
	for _, v := range r.Verdicts {
		if !v.OK {
			why = append(why, fmt.Sprintf("%s: %s", v.Bound, v.Why))
		}
	}
	why = append(why, r.Objections()...)
	return len(why) == 0, why
}

// OnlyByClock says whether nothing speaks against a judged result but bounds
// that the error of the clocks leaves open.
func (r *Result) OnlyByClock() bool {
	open := false
	for _, v := range r.Verdicts {
		if !v.OK && !v.ByClock {
			return false
		}
		open = open || v.ByClock
	}
	return open && len(r.Objections()) == 0
}

// Objections says what speaks against the result as a whole, whatever its
// figures are. A saturated generator does unless bounds were asked for and all
// of them are on counts.
func (r *Result) Objections() []string {
	var why []string
	if r.Info.Failure != "" {
		why = append(why, printable(r.Info.Failure))
	}
	if r.Info.Interrupted {
		why = append(why, "the run was interrupted")
	}
	if r.Generator.Saturated && !r.onlyExact() {
		why = append(why, "the generator was saturated: the figures may be its own")
	}
	return why
}

// onlyExact says whether bounds were asked for, and all of them on exact
// figures.
func (r *Result) onlyExact() bool {
	asked := false
	for _, v := range r.Verdicts {
		if !v.Asked {
			continue
		}
		asked = true
		if f := r.Figure(v.Metric); f == nil || !f.Exact {
			return false
		}
	}
	return asked
}
