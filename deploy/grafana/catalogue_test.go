// Package grafana holds what operators look at: dashboards, alerts and what to
// do about them. Its tests hold that against the metrics that there are.
package grafana

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/relay"
	agent "github.com/fairlead/fairlead/sandbox-agent"
)

// The types of metrics.
const (
	counter   = "COUNTER"
	gauge     = "GAUGE"
	histogram = "HISTOGRAM"
	summary   = "SUMMARY"
)

// A family is one metric.
type family struct {
	name, help string
	kind       string
	labels     []string
	values     map[string]map[string]bool // by label, those that show from the start
}

// late are the metrics that don't show before something has happened, since
// nobody knows their labels' values beforehand.
var late = map[string]string{"fairlead_sandbox_mcp_calls_total": counter}

// programs returns the metrics of each program, by its job's name.
func programs(t *testing.T) map[string]map[string]family {
	t.Helper()
	sandbox, err := agent.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]map[string]family{
		"fairlead-relay": families(t, relay.Metrics()), "fairlead-controlplane": families(t, controlplane.Metrics()),
		"fairlead-sandbox": families(t, sandbox),
	}
}

var described = regexp.MustCompile(`^Desc{fqName: "([^"]*)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: {[^}]*}, variableLabels: {([^}]*)}}$`)

// families returns the metrics of a registry: those that it describes, with the
// type and the values of labels that it shows.
func families(t *testing.T, registry *prometheus.Registry) map[string]family {
	t.Helper()
	all := map[string]family{}
	descs := make(chan *prometheus.Desc, 1000)
	registry.Describe(descs)
	close(descs)
	for desc := range descs {
		parts := described.FindStringSubmatch(desc.String())
		if parts == nil {
			t.Fatalf("can't read %s", desc)
		}
		f := family{name: parts[1], help: strings.ReplaceAll(parts[2], `\"`, `"`), values: map[string]map[string]bool{}}
		if parts[3] != "" {
			f.labels = strings.Split(parts[3], ",")
		}
		all[f.name] = f
	}
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range gathered {
		f := all[shown.GetName()]
		f.name, f.help, f.kind = shown.GetName(), shown.GetHelp(), shown.GetType().String()
		if f.values == nil { // collectors of the runtime describe only a part
			f.values = map[string]map[string]bool{}
		}
		for _, series := range shown.GetMetric() {
			for _, pair := range series.GetLabel() {
				if f.values[pair.GetName()] == nil {
					f.values[pair.GetName()] = map[string]bool{}
				}
				f.values[pair.GetName()][pair.GetValue()] = true
			}
			if f.kind == summary {
				f.values["quantile"] = map[string]bool{"0": true, "0.25": true, "0.5": true, "0.75": true, "1": true}
			}
		}
		f.labels = slices.Sorted(maps.Keys(f.values))
		all[f.name] = f
		delete(all, "")
	}
	for name, f := range all {
		if kind, known := late[name]; known {
			f.kind = kind
			all[name] = f
			continue
		}
		if strings.HasPrefix(name, "fairlead_") && len(f.values) < len(f.labels) || f.help == "" {
			t.Errorf("%s doesn't show before something has happened: give it its labels' values", name)
		}
	}
	return all
}

// suffixed returns the family that a series of this name belongs to, and which
// part of it the name says.
func suffixed(all map[string]family, name string) (f family, part string, ok bool) {
	if f, ok = all[name]; ok {
		return f, "", true
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(name, part)
		if f, ok = all[base]; cut && ok && (f.kind == histogram || f.kind == summary && part != "_bucket") {
			return f, part, true
		}
	}
	return family{}, "", false
}

// merged returns the metrics of all programs.
func merged(t *testing.T) map[string]family {
	t.Helper()
	all := map[string]family{
		"up": {name: "up", kind: gauge}, // Prometheus's own
	}
	for _, of := range programs(t) {
		for name, f := range of {
			if other, twice := all[name]; twice && strings.HasPrefix(name, "fairlead_") && other.help != f.help {
				t.Errorf("%s is two things: %q and %q", name, other.help, f.help)
			}
			all[name] = f
		}
	}
	return all
}

// TestMetrics: what the programs show has the form that is usual.
func TestMetrics(t *testing.T) {
	name := regexp.MustCompile(`^fairlead_[a-z0-9_]+$`)
	about := regexp.MustCompile(`(^|_)(id|session|pty|user|sandbox|grant|address|path|host)$`)
	for program, all := range programs(t) {
		own := 0
		for _, f := range all {
			if !strings.HasPrefix(f.name, "fairlead_") {
				continue
			}
			own++
			if !name.MatchString(f.name) || (f.kind == counter) != strings.HasSuffix(f.name, "_total") {
				t.Errorf("%s: %s, a %s, has an unusual name", program, f.name, f.kind)
			}
			if f.kind == histogram && !strings.HasSuffix(f.name, "_seconds") && !strings.HasSuffix(f.name, "_bytes") {
				t.Errorf("%s: %s has no unit", program, f.name)
			}
			if !strings.HasSuffix(f.help, ".") {
				t.Errorf("%s: %s: help %q", program, f.name, f.help)
			}
			for _, label := range f.labels {
				if about.MatchString(label) {
					t.Errorf("%s: %s has the label %s, of which there are too many values", program, f.name, label)
				}
			}
		}
		if own < 20 {
			t.Errorf("%s has %d metrics of its own", program, own)
		}
	}
}

// targetLabels are those that Prometheus gives every series.
var targetLabels = []string{"job", "instance"}

// check says what is wrong with an expression, given the metrics that there are.
func check(all map[string]family, expr string) (query, []string) {
	q, err := parse(expr)
	if err != nil {
		return q, []string{err.Error()}
	}
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	known := slices.Clone(targetLabels)
	for _, s := range q.selectors {
		f, part, ok := suffixed(all, s.metric)
		if !ok {
			complain("there is no metric %s", s.metric)
			continue
		}
		if f.kind == histogram && part == "" {
			complain("%s is a histogram: name a part of it", s.metric)
		}
		cumulative := f.kind == counter || part != ""
		switch {
		case s.ranged != slices.Contains(ranging, s.within):
			complain("%s: a range is what %v want, and nothing else does", s.metric, ranging)
		case cumulative && s.within != "rate" && s.within != "increase":
			complain("%s only ever grows: ask for its rate", s.metric)
		case !cumulative && (s.within == "rate" || s.within == "increase"):
			complain("%s is a gauge, which has no rate", s.metric)
		}
		labels := append(slices.Clone(targetLabels), f.labels...)
		if part == "_bucket" {
			labels = append(labels, "le")
		}
		known = append(known, labels...)
		for _, m := range s.matchers {
			if !slices.Contains(labels, m.label) {
				complain("%s has no label %s", s.metric, m.label)
				continue
			}
			for _, value := range strings.Split(m.value, "|") {
				if values := f.values[m.label]; values != nil && !strings.ContainsAny(value, ".*+$") && !values[value] {
					complain("%s: %s is never %q", s.metric, m.label, value)
				}
			}
		}
	}
	for _, label := range q.labels {
		if !slices.Contains(known, label) {
			complain("nothing in it has the label %s", label)
		}
	}
	return q, wrong
}

// TestCheck: a name that is misspelt is found, whichever it is.
func TestCheck(t *testing.T) {
	all := merged(t)
	for _, bad := range []string{
		`sum(fairlead_viewer)`, `fairlead_viewers{jobb="x"}`, `sum by (carier) (fairlead_tunnels)`, `fairlead_tunnels{carrier="quick"}`,
		`fairlead_delivery_seconds`, `rate(fairlead_viewers[5m])`, `fairlead_output_bytes_total`, `fairlead_delivery_seconds_bucket`,
		`rate(fairlead_output_bytes_total_bucket[5m])`, `rate(fairlead_output_bytes_total)`, `sum(rate(fairlead_tunnels_closed_total{kind=~"silent|lost"}[5m]))`,
		`sum by (le) (fairlead_viewers)`, `fairlead_viewers[5m]`,
	} {
		if _, wrong := check(all, bad); len(wrong) == 0 {
			t.Errorf("%s passes", bad)
		}
	}
	for _, good := range []string{
		`sum(fairlead_viewers)`, `sum by (carrier, job) (fairlead_tunnels{carrier=~"quic|websocket", instance=~".+"})`,
		`histogram_quantile(0.5, sum by (le) (rate(fairlead_delivery_seconds_bucket[5m])))`, `up{job="fairlead-relay"} == 0`,
	} {
		if _, wrong := check(all, good); len(wrong) > 0 {
			t.Errorf("%s: %q", good, wrong)
		}
	}
}
