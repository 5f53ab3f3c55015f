package measure

import (
	"fmt"
	"math"
	"strings"
)

// When the figures may be the generator's own.
const (
	saturatedCPU  = 0.9   // of the cores that one process may use, over busySeconds
	suspectLag    = 0.005 // seconds at p99, if that is more than
	suspectShare  = 0.25  // of the smallest headline p99
	saturatedLag  = 0.020 // seconds at p99, if that is more than
	negligible    = 0.1   // of the smallest headline p99
	busySeconds   = 5
	generatorName = "generator" // prefix of the processes that are looked at
)

// generatorOf returns what the generators needed, and whether they kept up.
func generatorOf(r *Result) Generator {
	var g Generator
	for _, p := range r.Processes {
		if !strings.HasPrefix(p.Name, generatorName) {
			continue
		}
		g.Processes++
		used := busiest(p.Points) / float64(max(p.Cores, 1))
		if used > saturatedCPU {
			g.Why = append(g.Why, fmt.Sprintf("%s used %.0f %% of the %d cores it may have", p.Name, used*100, max(p.Cores, 1)))
		}
		g.CPU = max(g.CPU, used)
	}
	if f := r.Figure(LagName + "_p99"); f != nil {
		g.LagP99 = f.Value
	}
	if g.LagP99 != nil {
		if why := late(r, *g.LagP99); why != "" {
			g.Why = append(g.Why, why)
		}
	}
	g.Saturated = len(g.Why) > 0
	return g
}

// late says in words why the lag is too much, "" when it is not: it explains
// too much of the smallest latency that the run is about.
func late(r *Result, lag float64) string {
	smallest, name := math.Inf(1), ""
	for _, f := range r.Figures {
		if f.Headline && f.Name == f.Metric+"_p99" && f.Value != nil && *f.Value < smallest {
			smallest, name = *f.Value, f.Name
		}
	}
	switch {
	case lag > saturatedLag && name == "":
		return fmt.Sprintf("the generators' lag at p99 is %.1f ms", lag*1e3)
	case lag > suspectLag && lag > suspectShare*smallest, lag > saturatedLag && lag > negligible*smallest:
		return fmt.Sprintf("the generators' lag at p99 is %.1f ms, %.0f %% of %s", lag*1e3, 100*lag/smallest, name)
	}
	return ""
}

// busiest returns the most cores used over busySeconds, or over everything when
// that is shorter.
func busiest(points []ResourcePoint) float64 {
	var most, used, length float64
	first := 1
	for i := 1; i < len(points); i++ {
		used += work(points, i)
		length += points[i].Seconds - points[i-1].Seconds
		for first < i && length-(points[first].Seconds-points[first-1].Seconds) >= busySeconds {
			used -= work(points, first)
			length -= points[first].Seconds - points[first-1].Seconds
			first++
		}
		if length >= busySeconds {
			most = max(most, used/length)
		}
	}
	if most == 0 && length > 0 {
		most = used / length
	}
	return most
}

// work returns the CPU seconds used until a point since the one before.
func work(points []ResourcePoint, i int) float64 {
	return max(points[i].CPU, 0) * (points[i].Seconds - points[i-1].Seconds)
}
