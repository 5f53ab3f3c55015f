package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/growth"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// testEnv is an environment whose figures are collected.
func testEnv(o stage.Options, metrics ...measure.Metric) *stage.Env {
	return &stage.Env{
		Options: &o, Out: measure.NewCollection(metrics),
		Progress: func(string, float64, float64) {}, Say: func(string, ...any) {},
	}
}

// While a bound is undecided more blocks follow, up to thirty.
func TestEachBlock(t *testing.T) {
	bound := func(number float64) []measure.SLO {
		return []measure.SLO{{Metric: "x", Op: "<", Number: number}}
	}
	for _, row := range []struct {
		name   string
		slos   []measure.SLO
		value  func(block int) float64
		blocks int
	}{
		{"no bound", nil, func(b int) float64 { return float64(b) }, 9},
		{"clear", bound(100), func(b int) float64 { return float64(b) }, 9},
		{"broken", bound(-1), func(b int) float64 { return float64(b) }, 9},
		{"never decided", bound(5), func(b int) float64 { return float64(b % 11) }, stage.MaxBlocks},
		{"decided later", bound(5), func(b int) float64 {
			if b < 9 {
				return float64(b)
			}
			return 1
		}, 0},
	} {
		env := testEnv(stage.Options{Blocks: 9, SLOs: row.slos}, measure.Metric{Name: "x"})
		n := 0
		err := env.EachBlock(t.Context(), "test", stage.Side{Run: func(_ context.Context, block int) error {
			env.Out.BlockAt("x", block, row.value(block))
			n++
			return nil
		}})
		switch {
		case err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.blocks == 0 && (n <= 9 || n >= stage.MaxBlocks), row.blocks > 0 && n != row.blocks:
			t.Errorf("%s: %d blocks, want %d", row.name, n, row.blocks)
		}
	}
}

// All sides are measured once in each block, which begins with another one each
// time; what there is no group of is left out.
func TestSidesTakeTurns(t *testing.T) {
	var order []string
	named := func(name string, groups ...*generator.Group) stage.Side {
		return stage.Side{Phase: name, Groups: groups, Run: func(_ context.Context, block int) error {
			order = append(order, fmt.Sprint(name, block))
			return nil
		}}
	}
	env := testEnv(stage.Options{Blocks: 4})
	if err := env.EachBlock(t.Context(), "test", named("a"), named("b"), named("c", nil)); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "), "a0 b0 b1 a1 a2 b2 a3 b3"; got != want {
		t.Errorf("measured %s, want %s", got, want)
	}
	failure := errors.New("no")
	err := env.EachBlock(t.Context(), "test", named("a"), stage.Side{Run: func(context.Context, int) error { return failure }}, named("d"))
	if !errors.Is(err, failure) || order[len(order)-1] != "a0" {
		t.Errorf("a side fails: %v, after %v", err, order)
	}
}

// Every scenario says what a reader needs, and has names of its own.
func TestScenarios(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range All() {
		switch {
		case s.Name == "" || s.Summary == "" || s.Long == "" || s.Example == "" || s.Run == nil || len(s.Metrics) == 0:
			t.Errorf("%s lacks something", s.Name)
		case seen[s.Name]:
			t.Errorf("%s is there twice", s.Name)
		case strings.HasSuffix(s.Summary, ".") || len(s.Summary) > 90:
			t.Errorf("%s: summary %q", s.Name, s.Summary)
		}
		seen[s.Name] = true
		for _, m := range s.Metrics {
			if m.Help == "" {
				t.Errorf("%s: nothing says what %s is", s.Name, m.Name)
			}
		}
		for _, slo := range s.Defaults.SLOs {
			if err := slo.Check(s.Metrics); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
		if Find(s.Name) != s {
			t.Errorf("%s isn't found", s.Name)
		}
	}
	if Find("none") != nil {
		t.Error("a scenario was found that isn't there")
	}
}

// Growth is told from the second quarter to the last, of all processes of a kind.
func TestGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := testEnv(stage.Options{})
		from := time.Now()
		for i := range 100 {
			for _, name := range []string{"relay-1", "relay-2"} {
				env.Out.Resource(name, time.Now(), measure.Resource{RSSBytes: int64(1000 + 10*i), CPUSeconds: float64(i)})
			}
			time.Sleep(time.Second)
		}
		growth.Record(env.Out, 2, 1, from, time.Now())
		result := env.Out.Result(measure.Info{Start: from})
		if f := result.Figure("relay_growth"); f == nil || f.Value == nil || *f.Value != 2*500 {
			t.Errorf("relays grew by %+v, want 1000", f)
		}
		for _, unknown := range []string{"agent_growth", "relay_goroutines_growth"} {
			if f := result.Figure(unknown); f != nil {
				t.Errorf("%s, which nobody knows, is %v", unknown, *f.Value)
			}
		}
	})
}
