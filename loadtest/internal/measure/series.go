package measure

import (
	"maps"
	"math"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// openSeconds is how long a second's histogram is kept for snapshots that
// arrive late. Those that come later yet are in every figure, but only in the
// count and the maximum of their point.
const openSeconds = 8

// openBlocks is how many blocks' histograms are kept unpacked.
const openBlocks = 2

// A latencySeries is one latency over time, per block and in all.
type latencySeries struct {
	total  *hdr.Histogram
	tally  Tally
	open   map[int64]*hdr.Histogram // by Unix second
	points map[int64]Point          // of the seconds that are closed
	blocks map[int]*packed
	full   bool // of points
}

func newLatencySeries() *latencySeries {
	return &latencySeries{
		total:  newHistogram(),
		open:   make(map[int64]*hdr.Histogram),
		points: make(map[int64]Point),
		blocks: make(map[int]*packed),
	}
}

// merge adds what was recorded around a time in a block.
func (s *latencySeries) merge(block int, at time.Time, l LatencySnapshot) error {
	s.tally.add(l.Tally)
	if l.Histogram == "" {
		return nil
	}
	h, err := decodeHistogram(l.Histogram)
	if err != nil {
		return err
	}
	s.total.Merge(h)
	if block >= 0 && (s.blocks[block] != nil || len(s.blocks) < maxBlocks) {
		s.block(block).Merge(h)
	}
	s.second(at.Unix(), h)
	return nil
}

// block returns the histogram of a block and packs those of others.
func (s *latencySeries) block(block int) *hdr.Histogram {
	p := s.blocks[block]
	if p == nil {
		p = new(packed)
		s.blocks[block] = p
	}
	for b, other := range s.blocks {
		if b <= block-openBlocks || b >= block+openBlocks {
			other.pack()
		}
	}
	return p.unpack()
}

// second adds h to a second.
func (s *latencySeries) second(second int64, h *hdr.Histogram) {
	if p, ok := s.points[second]; ok {
		p.Count += h.TotalCount()
		p.Max = max(p.Max, seconds(h.Max()))
		s.points[second] = p
		return
	}
	if s.open[second] == nil {
		if len(s.points)+len(s.open) >= maxPoints {
			s.full = true
			return
		}
		s.open[second] = newHistogram()
	}
	s.open[second].Merge(h)
	for t, o := range s.open {
		if t <= second-openSeconds {
			s.points[t] = pointOf(t, o)
			delete(s.open, t)
		}
	}
}

// all returns the points of every second so far, with Unix seconds.
func (s *latencySeries) all() []Point {
	points := slices.AppendSeq(make([]Point, 0, len(s.points)+len(s.open)), maps.Values(s.points))
	for t, h := range s.open {
		points = append(points, pointOf(t, h))
	}
	slices.SortFunc(points, func(a, b Point) int { return int(a.Second - b.Second) })
	return points
}

// last returns a histogram of the seconds after the given one.
func (s *latencySeries) last(after int64) *hdr.Histogram {
	h := newHistogram()
	for t, o := range s.open {
		if t > after {
			h.Merge(o)
		}
	}
	return h
}

func pointOf(second int64, h *hdr.Histogram) Point {
	v := h.ValueAtPercentilesSlice([]float64{50, 90, 99})
	return Point{
		Second: second, Count: h.TotalCount(),
		P50: seconds(v[0]), P90: seconds(v[1]), P99: seconds(v[2]), Max: seconds(h.Max()),
	}
}

// packed is a histogram that is small while nobody adds to it.
type packed struct {
	hist *hdr.Histogram
	text string
}

func (p *packed) pack() {
	if p.hist != nil {
		p.text, p.hist = encodeHistogram(p.hist), nil
	}
}

func (p *packed) unpack() *hdr.Histogram {
	if p.hist == nil {
		p.hist = p.read()
	}
	return p.hist
}

// read returns the histogram, which stays packed.
func (p *packed) read() *hdr.Histogram {
	if p.hist != nil {
		return p.hist
	}
	if p.text != "" {
		if h, err := decodeHistogram(p.text); err == nil {
			return h
		}
	}
	return newHistogram()
}

// A counterSeries is one counter over time, per block and in all.
type counterSeries struct {
	total  int64
	blocks map[int]int64
	rates  map[int64]float64 // by Unix second
	full   bool
}

func newCounterSeries() *counterSeries {
	return &counterSeries{blocks: make(map[int]int64), rates: make(map[int64]float64)}
}

// merge adds n, counted between two times, to the seconds between them, to each
// its share: snapshots are not taken on the second.
func (s *counterSeries) merge(block int, from, to time.Time, n int64) {
	s.total += n
	if _, ok := s.blocks[block]; ok || len(s.blocks) < maxBlocks {
		s.blocks[block] += n
	}
	if !to.After(from) || to.Sub(from) > time.Hour {
		from = to
	}
	length := to.Sub(from).Seconds()
	for t := from.Unix(); t <= to.Unix(); t++ {
		share := 1.0
		if length > 0 {
			begin, end := time.Unix(t, 0), time.Unix(t+1, 0)
			if begin.Before(from) {
				begin = from
			}
			if end.After(to) {
				end = to
			}
			share = max(end.Sub(begin).Seconds(), 0) / length
		}
		if share == 0 {
			continue
		}
		if _, ok := s.rates[t]; !ok && len(s.rates) >= maxPoints {
			s.full = true
			continue
		}
		s.rates[t] += share * float64(n)
	}
}

// all returns the points of every second so far, with Unix seconds.
func (s *counterSeries) all() []RatePoint {
	points := make([]RatePoint, 0, len(s.rates))
	for _, t := range slices.Sorted(maps.Keys(s.rates)) {
		// A thousandth is finer than any plot.
		points = append(points, RatePoint{t, math.Round(s.rates[t]*1000) / 1000})
	}
	return points
}

// leastApart is the time between two moments of a process: in less, the ticks by
// which the system counts its work are no measure of it.
const leastApart = 200 * time.Millisecond

// A processSeries is what one process uses over time.
type processSeries struct {
	cores  int
	times  []time.Time
	points []Resource
}

func newProcessSeries() *processSeries { return new(processSeries) }

// add adds a moment, false when there is no room.
func (p *processSeries) add(at time.Time, r Resource) bool {
	if len(p.points) >= maxPoints {
		return false
	}
	if n := len(p.times); n > 0 && at.Before(p.times[n-1].Add(leastApart)) {
		return true
	}
	p.times = append(p.times, at)
	p.points = append(p.points, r)
	return true
}

// since returns the moments, in seconds after start.
func (p *processSeries) since(start time.Time) []ResourcePoint {
	points := make([]ResourcePoint, 0, len(p.points))
	for i, r := range p.points {
		if start.IsZero() {
			start = p.times[i]
		}
		points = append(points, ResourcePoint{
			Seconds:  millis(p.times[i].Sub(start)),
			CPU:      p.cpu(i),
			RSSBytes: r.RSSBytes, HeapBytes: r.HeapBytes, FDs: r.FDs, Goroutines: r.Goroutines,
		})
	}
	return points
}

// cpu returns the cores used since the moment before, -1 at the first one and
// at the first after a restart.
func (p *processSeries) cpu(i int) float64 {
	if i == 0 {
		return -1
	}
	a, b := p.points[i-1], p.points[i]
	length := p.times[i].Sub(p.times[i-1]).Seconds()
	if a.Started != b.Started || b.CPUSeconds < a.CPUSeconds || length <= 0 {
		return -1
	}
	return math.Round((b.CPUSeconds-a.CPUSeconds)/length*1e4) / 1e4
}

// millis returns a duration in seconds, to the millisecond.
func millis(d time.Duration) float64 { return float64(d.Milliseconds()) / 1e3 }
