package screen_test

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// historyLimit is how many lines viewers keep, more than a Screen does.
const historyLimit = 10_000

// A grid is what is compared with the oracle: a Screen, or something known to
// be right or wrong that proves the comparison.
type grid interface {
	Write(out, answers, p []byte) (o, a []byte)
	Flush(out []byte) []byte
	Resize(cols, rows int)
	AppendKeyframe(dst []byte, history int) []byte
	// state reports what shownDifference compares.
	state() *state
}

// A script is what happens to a terminal.
type script struct {
	Cols, Rows int
	Steps      []step
	Chunk      int    // the program's output comes in pieces of so many bytes; 0: whole steps
	Cuts       []int  // keyframes are taken at these positions: bytes of output and resizes
	Junk       uint64 // seed of what terminals have seen before they get a keyframe
	Plain      bool   // no queries: what viewers see is the output
}

// A step is output or, if Cols isn't 0, a new size.
type step struct {
	Output     string
	Cols, Rows int
}

func (s step) String() string {
	if s.Cols != 0 {
		return fmt.Sprintf("{Cols: %d, Rows: %d}", s.Cols, s.Rows)
	}
	return fmt.Sprintf("{Output: %+q}", s.Output)
}

// A cut is the moment at which a keyframe is taken.
type cut struct {
	position int
	seen     int // how many of the oracle's steps came before
	cols     int
	rows     int
	state    *state
	keyframe []byte
	moved    bool // a resize came just before
	resized  bool // afterwards
}

// A performance is a script carried out on a grid.
type performance struct {
	script *script
	grid   grid
	left   []int // positions of keyframes to come
	at     int   // position
	cols   int
	rows   int

	seen   []oracleStep // what viewers got
	cuts   []cut
	output int // bytes that the program has written
	end    *state
	exempt []string // why cuts aren't compared
	spared []string // why viewers got something else
}

// length is the position at the end.
func (s *script) length() int {
	n := 0
	for _, step := range s.Steps {
		n += len(step.Output)
		if step.Cols != 0 {
			n++
		}
	}
	return n
}

// perform plays s on a grid, until viewers have seen limit steps.
func (s *script) perform(newGrid func(cols, rows int) grid, limit int) *performance {
	p := &performance{script: s, grid: newGrid(s.Cols, s.Rows), cols: s.Cols, rows: s.Rows}
	p.left = slices.Sorted(slices.Values(s.Cuts))
	for _, step := range s.Steps {
		p.cut()
		if len(p.seen) >= limit {
			break
		}
		if step.Cols != 0 {
			p.resize(step.Cols, step.Rows)
			continue
		}
		for rest := []byte(step.Output); len(rest) > 0 && len(p.seen) < limit; p.cut() {
			rest = rest[p.write(rest):]
		}
	}
	p.cut()
	p.emit(p.grid.Flush(nil))
	p.end = p.grid.state()
	return p
}

// cut takes the keyframes that are due.
func (p *performance) cut() {
	for len(p.left) > 0 && p.left[0] <= p.at {
		p.cuts = append(p.cuts, cut{
			position: p.at, seen: len(p.seen), cols: p.cols, rows: p.rows, state: p.grid.state(),
			keyframe: p.grid.AppendKeyframe(nil, historyLimit), moved: p.justResized(),
		})
		p.left = p.left[1:]
	}
}

func (p *performance) resize(cols, rows int) {
	p.grid.Resize(cols, rows)
	p.cols, p.rows = cols, rows
	for i := range p.cuts {
		p.cuts[i].resized = true
	}
	p.seen = append(p.seen, oracleStep{Resize: &[2]int{cols, rows}})
	p.at++
}

// write writes the next piece of output, up to a keyframe, and tells its size.
func (p *performance) write(output []byte) int {
	n := len(output)
	if p.script.Chunk > 0 {
		n = min(n, p.script.Chunk)
	}
	if len(p.left) > 0 {
		n = min(n, p.left[0]-p.at)
	}
	out, _ := p.grid.Write(nil, nil, output[:n])
	p.emit(out)
	p.output += n
	p.at += n
	return n
}

func (p *performance) emit(out []byte) {
	if len(out) > 0 {
		p.seen = append(p.seen, oracleStep{Write: out})
	}
}

// places are lines of a stack that lie outside of tests.
var places = regexp.MustCompile(`[^/\s]*[^t]\.go:\d+ `)

// unended matches the beginning of a sequence, or of a string.
var unended = regexp.MustCompile(`^\x1b(\[[^@-~\x1b]*|[]P^_X][^\a\x1b\x18\x1a]*)?$`)

// justResized reports whether at most a few bytes, which may have had no effect,
// or the beginning of a sequence followed the last resize.
func (p *performance) justResized() bool {
	var since []byte
	for _, s := range slices.Backward(p.seen) {
		if s.Resize != nil {
			return len(since) <= 4 || unended.Match(since)
		}
		since = append(slices.Clone(s.Write), since...)
	}
	return false
}

// attempt is perform that reports a panic.
func (s *script) attempt(newGrid func(cols, rows int) grid, limit int) (p *performance, crash string) {
	defer func() {
		if r := recover(); r != nil {
			crash = fmt.Sprintf("panic: %v\n%s", r, strings.Join(places.FindAllString(string(debug.Stack()), 3), "\n"))
		}
	}()
	return s.perform(newGrid, limit), ""
}

// requests are what the oracle must do for p: one terminal that sees all, and
// for each cut one that has seen something else and continues from the
// keyframe.
func (p *performance) requests() []request {
	all := request{Cols: p.script.Cols, Rows: p.script.Rows, Scrollback: historyLimit}
	requests := []request{all}
	at := 0
	for i, c := range p.cuts {
		all.Steps = append(append(all.Steps, p.seen[at:c.seen]...), oracleStep{Snapshot: true})
		at = c.seen
		late := dirty(p.script.Junk+uint64(i), c.cols, c.rows)
		late.Steps = append(late.Steps, oracleStep{Write: c.keyframe}, oracleStep{Snapshot: true})
		late.Steps = append(append(late.Steps, p.seen[at:]...), oracleStep{Snapshot: true})
		requests = append(requests, late)
	}
	all.Steps = append(append(all.Steps, p.seen[at:]...), oracleStep{Snapshot: true})
	requests[0] = all
	return requests
}
