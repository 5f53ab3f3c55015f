package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A dashboard is what is checked of a dashboard of Grafana.
type dashboard struct {
	UID           string  `json:"uid"`
	Title         string  `json:"title"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	} `json:"templating"`
}

type panel struct {
	ID          int    `json:"id"`
	Type, Title string `json:",omitempty"`
	GridPos     struct{ H, W, X, Y int }
	Datasource  struct{ Type, UID string }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
}

// dashboards returns those of the folder, by file.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = d
	}
	return all
}

var (
	legend  = regexp.MustCompile(`{{\s*(\w+)\s*}}`)
	inQuery = regexp.MustCompile(`label_values\((\w+), (\w+)\)`)
	used    = regexp.MustCompile(`\$(\w+)`)
)

// TestDashboards: every metric, label and value that a panel names exists.
func TestDashboards(t *testing.T) {
	all, uids := merged(t), map[string]string{}
	for file, d := range dashboards(t) {
		if d.Title == "" || d.UID == "" || uids[d.UID] != "" || d.SchemaVersion < 39 {
			t.Errorf("%s: title %q, uid %q, which is also that of %q", file, d.Title, d.UID, uids[d.UID])
		}
		uids[d.UID] = file
		variables := map[string]bool{"__rate_interval": true}
		for _, v := range d.Templating.List {
			variables[v.Name] = true
			if asked := inQuery.FindStringSubmatch(fmt.Sprint(v.Query)); v.Type == "query" {
				if asked == nil {
					t.Errorf("%s: variable %s: %v", file, v.Name, v.Query)
				} else if f, known := all[asked[1]]; !known {
					t.Errorf("%s: variable %s: there is no metric %s", file, v.Name, asked[1])
				} else if !slices.Contains(targetLabels, asked[2]) && !slices.Contains(f.labels, asked[2]) {
					t.Errorf("%s: variable %s: %s has no label %s", file, v.Name, asked[1], asked[2])
				}
			}
		}
		if !variables["datasource"] {
			t.Errorf("%s: the data source can't be chosen", file)
		}
		layout(t, file, d.Panels)
		for _, p := range d.Panels {
			at := fmt.Sprintf("%s: %q", file, p.Title)
			if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
				t.Errorf("%s: %d queries of %q", at, len(p.Targets), p.Datasource.UID)
			}
			for _, target := range p.Targets {
				q, wrong := check(all, target.Expr)
				for _, w := range wrong {
					t.Errorf("%s: %s\n\t%s", at, w, target.Expr)
				}
				for _, name := range used.FindAllStringSubmatch(target.Expr, -1) {
					if !variables[name[1]] {
						t.Errorf("%s: there is no variable %s", at, name[1])
					}
				}
				for _, name := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					if !has(q, all, name[1]) {
						t.Errorf("%s: the legend's %s is no label of\n\t%s", at, name[1], target.Expr)
					}
				}
			}
		}
	}
}

// TestChatIsShown: every metric of conversations, shells, plugins and side panels is
// on a dashboard.
func TestChatIsShown(t *testing.T) {
	shown := map[string]bool{}
	all := merged(t)
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				q, _ := check(all, target.Expr)
				for _, s := range q.selectors {
					f, _, _ := suffixed(all, s.metric)
					shown[f.name] = true
				}
			}
		}
	}
	for name := range all {
		feature, _, _ := strings.Cut(strings.TrimPrefix(name, "fairlead_"), "_")
		if slices.Contains([]string{"chat", "history", "shell", "plugin", "plugins", "panel", "sidebar"}, feature) && !shown[name] {
			t.Errorf("%s is on no dashboard", name)
		}
	}
}

// has reports whether the result of q may have a label: one that it groups by,
// or any of the metric's own where nothing is grouped.
func has(q query, all map[string]family, label string) bool {
	if slices.Contains(q.labels, label) {
		return true
	}
	for _, s := range q.selectors {
		f, _, _ := suffixed(all, s.metric)
		if !slices.Contains(aggregations, s.within) && (slices.Contains(targetLabels, label) || slices.Contains(f.labels, label)) {
			return true
		}
	}
	return false
}

// layout says which panels lie over each other or have one number.
func layout(t *testing.T, file string, panels []panel) {
	t.Helper()
	ids := map[int]bool{}
	for i, p := range panels {
		g := p.GridPos
		if p.Title == "" || ids[p.ID] || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s: panel %d, %q, at %+v", file, p.ID, p.Title, g)
		}
		ids[p.ID] = true
		for _, q := range panels[:i] {
			o := q.GridPos
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%s: %q lies over %q", file, p.Title, q.Title)
			}
		}
	}
}

// A rule is one alert.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// readYAML reads a file strictly.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	readYAML(t, "alerts.yml", &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d alerts", len(all))
	}
	return all
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	heading  = regexp.MustCompile(`(?m)^### (Fairlead\w+)$`)
	template = regexp.MustCompile(`{{ \$labels\.(\w+) }}`)
	// boardLink is a link of the README to a dashboard.
	boardLink = regexp.MustCompile(`\((dashboards/[^)]+)\)`)
)

// TestAlerts: every metric, label and value that an alert names exists, and the
// README says what to do about it.
func TestAlerts(t *testing.T) {
	all, text := merged(t), readme(t)
	documented := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		documented[m[1]] = true
	}
	names := map[string]bool{}
	for _, r := range alerts(t) {
		q, wrong := check(all, r.Expr)
		for _, w := range wrong {
			t.Errorf("%s: %s", r.Alert, w)
		}
		if names[r.Alert] || !documented[r.Alert] {
			t.Errorf("%s is there twice, or has no paragraph in the README", r.Alert)
		}
		names[r.Alert] = true
		delete(documented, r.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || !variable.MatchString(r.For) {
			t.Errorf("%s: severity %q, for %q", r.Alert, r.Labels["severity"], r.For)
		}
		if want := "deploy/grafana/README.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		for _, part := range []string{"summary", "description"} {
			if r.Annotations[part] == "" {
				t.Errorf("%s has no %s", r.Alert, part)
			}
			for _, m := range template.FindAllStringSubmatch(r.Annotations[part], -1) {
				if !has(q, all, m[1]) {
					t.Errorf("%s: its %s names %s, which the alert doesn't have", r.Alert, part, m[1])
				}
			}
		}
	}
	for name := range documented {
		t.Errorf("the README explains %s, which is no alert", name)
	}
}

// TestPrometheusExample: it scrapes the jobs that dashboards and alerts name, and
// loads the alerts.
func TestPrometheusExample(t *testing.T) {
	var config struct {
		Global map[string]any
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Job     string           `yaml:"job_name"`
			Path    string           `yaml:"metrics_path"`
			Scheme  string           `yaml:"scheme"`
			Params  map[string]any   `yaml:"params"`
			Auth    map[string]any   `yaml:"authorization"`
			Static  []map[string]any `yaml:"static_configs"`
			Relabel []map[string]any `yaml:"relabel_configs"`
			Every   string           `yaml:"scrape_interval"`
		} `yaml:"scrape_configs"`
		Alerting map[string]any
	}
	readYAML(t, "prometheus.yml", &config)
	jobs := map[string]bool{}
	for _, s := range config.Scrape {
		jobs[s.Job] = true
	}
	for job := range programs(t) {
		if !jobs[job] {
			t.Errorf("%s isn't scraped", job)
		}
	}
	for _, file := range config.Rules {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	named := func(expr string) {
		q, _ := parse(expr)
		for _, s := range q.selectors {
			for _, m := range s.matchers {
				if m.label == "job" && m.op == "=" && !jobs[m.value] {
					t.Errorf("%s: there is no job %s", expr, m.value)
				}
			}
		}
	}
	for _, r := range alerts(t) {
		named(r.Expr)
	}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				named(target.Expr)
			}
		}
	}
}

// TestReadme: it has a row for each metric of ours, which says what the metric
// says itself, and a line for each dashboard.
func TestReadme(t *testing.T) {
	text := readme(t)
	rows := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "| `fairlead_") {
			rows[line] = true
		}
	}
	for program, all := range programs(t) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !strings.HasPrefix(name, "fairlead_") {
				continue
			}
			if row := rowOf(all[name]); rows[row] {
				delete(rows, row)
			} else {
				t.Errorf("README: %s lacks\n%s", program, row)
			}
		}
	}
	for row := range rows {
		t.Errorf("README: no metric is as it says:\n%s", row)
	}
	files := dashboards(t)
	for file := range files {
		if !strings.Contains(text, "("+file+")") {
			t.Errorf("README: nothing about %s", file)
		}
	}
	for _, m := range boardLink.FindAllStringSubmatch(text, -1) {
		if _, there := files[m[1]]; !there {
			t.Errorf("README: there is no %s", m[1])
		}
	}
}

// rowOf returns a metric's row in the README.
func rowOf(f family) string {
	labels := "–"
	if len(f.labels) > 0 {
		labels = "`" + strings.Join(f.labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", f.name, strings.ToLower(f.kind), labels, strings.ReplaceAll(f.help, "|", `\|`))
}
