package report

import (
	"fmt"
	"math"
	"slices"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// maxAcross is how many labels have room below a plot of half the page's width.
const maxAcross = 6

// bins is how many bars a histogram has.
const bins = 72

// distributions plots the histogram and the percentiles of a latency, each with
// those of its baseline.
func (p *plotter) distributions(name string) ([]chart, error) {
	series := []*measure.Series{p.series(name)}
	if base := p.baselineOf(name); base != nil {
		series = append(series, base)
	}
	hists := make([]*hdr.Histogram, len(series))
	low, high := math.Inf(1), 0.0
	for i, s := range series {
		h, err := s.Distribution()
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", s.Name, err)
		}
		hists[i] = h
		low = min(low, seconds(max(h.Min(), 1)))
		high = max(high, seconds(max(h.Max(), 1)))
	}
	axis := logScale(low, high)
	return []chart{
		histogram(name, series, hists, axis),
		percentiles(name, series, hists, axis),
	}, nil
}

// lineClass returns the class of a latency's line, or of its baseline's.
func lineClass(i int) string {
	if i == 0 {
		return "c1"
	}
	return "base"
}

// histogram draws the share of the samples in bins of equal width on a
// logarithmic axis.
func histogram(name string, series []*measure.Series, hists []*hdr.Histogram, x scale) chart {
	ticks := x.logTicks("s")
	if len(ticks) > maxAcross {
		ticks = slices.DeleteFunc(ticks, func(k tick) bool { return k.Minor })
	}
	c := chart{
		Title:   name + ": how the samples are spread",
		X:       ticks,
		Caption: "Share of the samples in each of " + number(bins) + " bins of equal width on a logarithmic axis.",
		Table:   grid{Head: []string{"latency up to"}},
	}
	shares := make([][]float64, len(hists))
	most := 0.0
	for i, h := range hists {
		shares[i] = make([]float64, bins)
		for _, bar := range h.Distribution() {
			if bar.Count > 0 {
				at := x.at(seconds((bar.From + bar.To) / 2))
				shares[i][min(max(int(at*bins), 0), bins-1)] += 100 * float64(bar.Count) / float64(h.TotalCount())
			}
		}
		for _, v := range shares[i] {
			most = max(most, v)
		}
	}
	y, step := linearScale(most, false)
	c.Y = y.linearTicks(step, "%")
	for i, s := range series {
		c.Lines = append(c.Lines, line{
			Label: s.Name, Class: lineClass(i), Note: number(float64(s.Count)) + " samples",
			Path: outline(shares[i], y, false), Area: outline(shares[i], y, true),
		})
		c.Table.Head = append(c.Table.Head, s.Name)
	}
	c.Table.Rows = cumulative(shares, x)
	c.Summary = fmt.Sprintf("Half of the samples of %s are below %s, nine in ten below %s.", name,
		format(seconds(hists[0].ValueAtPercentile(50)), "s"), format(seconds(hists[0].ValueAtPercentile(90)), "s"))
	return c
}

// outline draws bars as one shape. Bins without samples are left out, so that
// two separate hills do not look connected.
func outline(shares []float64, y scale, closed bool) string {
	var p path
	inside := false
	for i, v := range shares {
		left, right := float64(i)/bins, float64(i+1)/bins
		switch {
		case v > 0 && !inside:
			p.move(left, 0)
			inside = true
		case v == 0 && inside:
			p.to(left, 0)
			if closed {
				p.close()
			}
			inside = false
		}
		if v > 0 {
			p.to(left, y.at(v))
			p.to(right, y.at(v))
		}
	}
	if inside {
		p.to(1, 0)
		if closed {
			p.close()
		}
	}
	return p.b.String()
}

// cumulative returns the rows of a histogram's table: how much lies below.
func cumulative(shares [][]float64, x scale) [][]string {
	var rows [][]string
	sums := make([]float64, len(shares))
	const each = 6
	for b := range bins {
		for i := range shares {
			sums[i] += shares[i][b]
		}
		if b%each != each-1 {
			continue
		}
		edge := x.low * math.Pow(x.high/x.low, float64(b+1)/bins)
		row := []string{format(edge, "s")}
		for _, s := range sums {
			row = append(row, format(math.Round(s*1e4)/1e4, "%"))
		}
		rows = append(rows, row)
	}
	return rows
}

// percentiles draws the latency that each share of the samples does not exceed,
// with an axis that gives every further nine the same room.
func percentiles(name string, series []*measure.Series, hists []*hdr.Histogram, y scale) chart {
	c := chart{
		Title:   name + " by percentile",
		Y:       y.logTicks("s"),
		Caption: "Every further nine has the same room. A line ends where fewer than one sample lies beyond; the scale is logarithmic.",
		Table:   grid{Head: []string{"percentile"}},
	}
	nines := 1.0
	for _, h := range hists {
		nines = max(nines, math.Log10(float64(max(h.TotalCount(), 1))))
	}
	x := scale{0, nines, false}
	marks := []float64{50, 90, 99, 99.9, 99.99, 99.999, 99.9999, 99.99999}
	for _, q := range marks {
		if at := depth(q); at <= nines*(1+1e-9) {
			c.X = append(c.X, tick{At: 100 * x.at(at), Label: "p" + fmt.Sprint(q)})
		}
	}
	for i, s := range series {
		var p path
		last := math.Log10(float64(max(hists[i].TotalCount(), 1)))
		const perNine = 40
		p.move(0, y.at(seconds(max(hists[i].Min(), 1))))
		for k := 1; k <= int(last*perNine); k++ {
			at := float64(k) / perNine
			v := hists[i].ValueAtPercentile(100 * (1 - math.Pow(10, -at)))
			p.to(x.at(at), y.at(seconds(max(v, 1))))
		}
		p.to(x.at(last), y.at(seconds(max(hists[i].Max(), 1))))
		c.Lines = append(c.Lines, line{
			Label: s.Name, Class: lineClass(i), Note: "max " + format(seconds(hists[i].Max()), "s"), Path: p.b.String(),
		})
		c.Table.Head = append(c.Table.Head, s.Name)
	}
	for _, q := range append(marks, 100) {
		row := []string{"p" + fmt.Sprint(q)}
		for _, h := range hists {
			row = append(row, format(seconds(h.ValueAtPercentile(q)), "s"))
		}
		if q == 100 || depth(q) <= nines {
			c.Table.Rows = append(c.Table.Rows, row)
		}
	}
	c.Summary = fmt.Sprintf("%s at p50 %s, at p99 %s, at most %s.", name, format(seconds(hists[0].ValueAtPercentile(50)), "s"),
		format(seconds(hists[0].ValueAtPercentile(99)), "s"), format(seconds(hists[0].Max()), "s"))
	return c
}

// depth returns how many nines a percentile has.
func depth(percent float64) float64 { return -math.Log10(1 - percent/100) }

// seconds of a histogram's microseconds.
func seconds(micros int64) float64 { return float64(micros) / 1e6 }
