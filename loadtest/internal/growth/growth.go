// Package growth says how much more of a machine processes use than before.
package growth

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// Within these bounds a process counts as unchanged.
const (
	SameGoroutines = 10
	SameFDs        = 5
	SameHeap       = 5 << 20 // bytes
)

// Settled reports whether processes, by name, use as much as before, or less.
func Settled(before, now map[string]measure.Resource) bool {
	if before == nil {
		return false
	}
	for name, n := range now {
		b := before[name]
		if n.Goroutines > b.Goroutines+SameGoroutines || n.FDs > b.FDs+SameFDs || n.HeapBytes > b.HeapBytes+SameHeap {
			return false
		}
	}
	return true
}

// Between records by how much a process uses more than before, as far as that is
// known.
func Between(out *measure.Collection, process string, was, now measure.Resource) {
	for _, g := range []struct {
		figure   string
		was, now int64
	}{
		{"goroutines", int64(was.Goroutines), int64(now.Goroutines)},
		{"heap", was.HeapBytes, now.HeapBytes},
		{"fds", int64(was.FDs), int64(now.FDs)},
		{"memory", was.RSSBytes, now.RSSBytes},
	} {
		if g.was > 0 && g.now > 0 {
			out.Value(process+"_"+g.figure+"_growth", float64(g.now-g.was))
		}
	}
}

// A figure is the growth of what processes use of something.
type figure struct {
	name      string
	processes []string
	of        func(measure.ResourcePoint) float64 // 0: not known
	typical   func([]float64) float64             // of what is used over time, of which there is some
}

// Record records by how much so many relays and agents, and the control plane, used
// more in the last quarter of the time than in the second.
func Record(out *measure.Collection, relays, agents int, from, to time.Time) {
	r, a := numbered("relay", relays), numbered("sandbox-agent", agents)
	for _, g := range []figure{
		{"relay_growth", r, resident, measure.Median},
		{"agent_growth", a, resident, measure.Median},
		{"controlplane_growth", []string{"controlplane"}, resident, measure.Median},
		{"relay_goroutines_growth", r, goroutines, measure.Median},
		{"relay_descriptors_growth", r, descriptors, measure.Median},
		{"agent_goroutines_growth", a, goroutines, measure.Median},
		// A heap rises and falls with its collections.
		{"agent_heap_growth", a, heap, slices.Min[[]float64]},
		{"agent_descriptors_growth", a, descriptors, measure.Median},
	} {
		record(out, g, from, to)
	}
}

func numbered(process string, count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%d", process, i+1))
	}
	return names
}

func resident(p measure.ResourcePoint) float64    { return float64(p.RSSBytes) }
func heap(p measure.ResourcePoint) float64        { return float64(p.HeapBytes) }
func goroutines(p measure.ResourcePoint) float64  { return float64(p.Goroutines) }
func descriptors(p measure.ResourcePoint) float64 { return float64(p.FDs) }

// record records one figure, if it is known.
func record(out *measure.Collection, g figure, from, to time.Time) {
	total, known := 0.0, false
	length := to.Sub(from).Seconds()
	for _, name := range g.processes {
		var second, last []float64
		for _, p := range out.Usage(name, from) {
			v := g.of(p)
			switch part := p.Seconds / length; {
			case v == 0:
			case part >= 0.25 && part < 0.5:
				second = append(second, v)
			case part >= 0.75 && part <= 1:
				last = append(last, v)
			}
		}
		if len(second) > 0 && len(last) > 0 {
			total, known = total+g.typical(last)-g.typical(second), true
		}
	}
	if known {
		out.Value(g.name, total)
	}
}
