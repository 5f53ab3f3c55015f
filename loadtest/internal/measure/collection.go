package measure

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of a collection. What is over them is dropped, and a note says so.
const (
	maxPoints     = 86_400 // of a series: a day
	maxNames      = 256    // of latencies, counters, values and processes each
	maxEvents     = 10_000
	maxNotes      = 100
	maxBlocks     = 10_000 // of a metric
	maxEventBytes = 200
)

// A Collection puts together what the processes of a run measure. Its methods
// may be called concurrently.
type Collection struct {
	// Static after construction.
	declared []Metric

	// Guarded by mu.
	mu        sync.Mutex
	latencies map[string]*latencySeries
	counters  map[string]*counterSeries
	values    map[string]float64
	blocks    map[string]map[int]float64 // set by Block
	divided   map[string]string          // asked for by Ratio: figure → baseline
	processes map[string]*processSeries
	phases    []*span
	events    []moment
	failures  map[string]*failureCount
	notes     []string
	noted     map[string]bool

	clockError time.Duration
}

type span struct {
	name     string
	block    int
	from, to time.Time
}

type moment struct {
	at   time.Time
	text string
}

// NewCollection returns an empty collection of the metrics that a scenario
// declares. What it records without declaring it is kept too, behind those.
func NewCollection(declared []Metric) *Collection {
	return &Collection{
		declared:  complete(declared),
		latencies: make(map[string]*latencySeries),
		counters:  make(map[string]*counterSeries),
		values:    make(map[string]float64),
		blocks:    make(map[string]map[int]float64),
		divided:   make(map[string]string),
		processes: make(map[string]*processSeries),
		failures:  make(map[string]*failureCount),
		noted:     make(map[string]bool),
	}
}

// Merge adds a snapshot that one process took in a phase. Block counts the
// interleaved blocks of the run from 0; a phase and its baseline have the same
// number, and -1 stands for none. A snapshot is of one block: take one at its
// end. The phase lasts while its snapshots hold anything.
func (c *Collection) Merge(phase string, block int, s Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.To.After(s.From) && s.busy() {
		c.extend(phase, block, s.From, s.To)
	}
	for name, l := range s.Latencies {
		if series := named(c, c.latencies, name, newLatencySeries); series != nil {
			if err := series.merge(block, middleOf(s.From, s.To), l); err != nil {
				c.note(fmt.Sprintf("a snapshot of %s was unreadable: %v", printable(name), err))
			}
		}
	}
	for name, n := range s.Counters {
		if series := named(c, c.counters, name, newCounterSeries); series != nil {
			series.merge(block, s.From, s.To, n)
		}
	}
	for reason, f := range s.Failures {
		count := reasonOf(c.failures, reason)
		count.count += f.Count
		for _, text := range f.Samples {
			count.keep(text)
		}
	}
	if p := s.Process; p != nil {
		c.resource(p.Name, p.Cores, s.To, p.Resource)
	}
}

// named returns the series of that name, made if there is room. c.mu is
// held.
func named[T any](c *Collection, all map[string]*T, name string, fresh func() *T) *T {
	s := all[name]
	if s == nil {
		if len(all) >= maxNames {
			c.note(fmt.Sprintf("more than %d names: the others were dropped", maxNames))
			return nil
		}
		s = fresh()
		all[name] = s
	}
	return s
}

// busy says whether anything was going on: generators also report while it is
// another's turn.
func (s Snapshot) busy() bool {
	for name, l := range s.Latencies {
		if name != LagName && (l.Histogram != "" || l.Tally.Warmup > 0) {
			return true
		}
	}
	for _, n := range s.Counters {
		if n != 0 {
			return true
		}
	}
	return false
}

// extend makes the phase's block last from and until those times. The caller
// holds mu.
func (c *Collection) extend(phase string, block int, from, to time.Time) {
	for _, s := range slices.Backward(c.phases) {
		if s.name == phase && s.block == block {
			if from.Before(s.from) {
				s.from = from
			}
			if to.After(s.to) {
				s.to = to
			}
			return
		}
	}
	if len(c.phases) >= maxBlocks {
		c.note(fmt.Sprintf("more than %d phases: the others are not shown", maxBlocks))
		return
	}
	c.phases = append(c.phases, &span{phase, block, from, to})
}

// Resource adds what a process uses at a time. The times of one process must
// rise; what comes less than 200 ms after the moment before is left out.
func (c *Collection) Resource(process string, at time.Time, r Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resource(process, 0, at, r)
}

// resource notes what a process uses. The caller holds mu.
func (c *Collection) resource(process string, cores int, at time.Time, r Resource) {
	p := named(c, c.processes, process, newProcessSeries)
	if p == nil {
		return
	}
	p.cores = max(p.cores, cores)
	if !p.add(at, r) {
		c.note(fmt.Sprintf("the resources of %s are shown for %d moments only", printable(process), maxPoints))
	}
}

// Event adds something that was done to what is measured ("relay 1 killed").
// The plots show it.
func (c *Collection) Event(at time.Time, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) >= maxEvents {
		c.note(fmt.Sprintf("only the first %d events are shown", maxEvents))
		return
	}
	text = printable(text)
	c.events = append(c.events, moment{at, strings.ToValidUTF8(text[:min(len(text), maxEventBytes)], "")})
}

// Fail counts a failure that the coordinator itself saw, as [Recorder.Fail].
func (c *Collection) Fail(reason string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := reasonOf(c.failures, reason)
	f.count++
	if err != nil {
		f.keep(err.Error())
	}
}

// Note adds a sentence that a reader of the figures has to know.
func (c *Collection) Note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(printable(text))
}

// note adds a note, once. The caller holds mu.
func (c *Collection) note(text string) {
	if c.noted[text] || len(c.notes) >= maxNotes {
		return
	}
	c.noted[text] = true
	c.notes = append(c.notes, text)
}

// CrossesClocks says whether any declared metric does.
func (c *Collection) CrossesClocks() bool {
	return slices.ContainsFunc(c.declared, func(m Metric) bool { return m.CrossesClocks })
}

// ClockError notes that the source's clock and ours were seen to agree within so
// much, after what is known of their difference was taken off. Of several the
// largest counts. Without a call they are one clock.
func (c *Collection) ClockError(within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clockError = max(c.clockError, within)
}

// Value sets a value of the whole run. One that is not finite is no value.
func (c *Collection) Value(name string, v float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !finite(v) {
		c.note(fmt.Sprintf("%s could not be computed", printable(name)))
		return
	}
	if _, ok := c.values[name]; !ok && len(c.values) >= maxNames {
		c.note(fmt.Sprintf("more than %d names: the others were dropped", maxNames))
		return
	}
	c.values[name] = v
}

// Block adds the value of the next block; [Collection.BlockAt] names the block.
// The figure is their median.
func (c *Collection) Block(name string, v float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := 0
	for b := range c.blocks[name] {
		next = max(next, b+1)
	}
	c.block(name, next, v)
}

// BlockAt sets the value of a block, counted from 0. Ratios are made of values
// of the same block.
func (c *Collection) BlockAt(name string, block int, v float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.block(name, block, v)
}

// block sets the value of a block. The caller holds mu.
func (c *Collection) block(name string, block int, v float64) {
	if !finite(v) {
		// The block stays counted, so that the next one is not taken for it.
		c.note(fmt.Sprintf("%s could not be computed in block %d", printable(name), block+1))
	}
	if c.blocks[name] == nil {
		if len(c.blocks) >= maxNames {
			c.note(fmt.Sprintf("more than %d names: the others were dropped", maxNames))
			return
		}
		c.blocks[name] = make(map[int]float64)
	}
	if len(c.blocks[name]) >= maxBlocks {
		c.note(fmt.Sprintf("more than %d blocks of %s: the others were dropped", maxBlocks, printable(name)))
		return
	}
	c.blocks[name][block] = v
}

// Extra records by how much a figure is above another one, of the last block that
// has both.
func (c *Collection) Extra(name, figure, baseline string, block int) {
	more, less := c.Blocks(figure), c.Blocks(baseline)
	if n, m := len(more), len(less); n > 0 && m > 0 {
		c.BlockAt(name, block, more[n-1]-less[m-1])
	}
}

// Ratio makes the figure NAME_ratio: that figure divided by the one called
// baseline, block by block, and its median. Metrics that declare their baseline
// have it without.
func (c *Collection) Ratio(name, baseline string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.divided) < maxNames {
		c.divided[name] = baseline
	}
}

// Blocks returns the values that a figure ("echo_p50") has in the blocks so
// far, in their order.
func (c *Collection) Blocks(figure string) []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return inOrder(c.blockValues(figure))
}

// Count returns what a counter has counted in a block, or in all when block is
// -1.
func (c *Collection) Count(name string, block int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.counters[name]
	if s == nil {
		return 0
	}
	if block < 0 {
		return s.total
	}
	return s.blocks[block]
}

// Usage returns what a process has used so far, from Start (zero: the first
// moment).
func (c *Collection) Usage(process string, start time.Time) []ResourcePoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[process]
	if p == nil {
		return nil
	}
	return p.since(start)
}

// middleOf returns the time in the middle.
func middleOf(from, to time.Time) time.Time { return from.Add(to.Sub(from) / 2) }
