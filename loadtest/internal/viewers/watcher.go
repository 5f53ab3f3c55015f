package viewers

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/protocol"
)

// A watcher is a viewer's [client.Handler]: it checks and times what comes. All
// but the static fields is used in the handler's methods, and in functions that
// the viewer's Do runs: the viewer runs one of them at a time.
type watcher struct {
	// Static after construction.
	viewer   *client.Viewer
	terminal int  // index
	slow     bool // may be skipped
	noSum    bool // compares, and takes no SHA-256
	received *measure.Counter
	open     *atomic.Int64 // checks that aren't done

	check   *check
	here    bool // greeted before
	lostAt  time.Time
	backAt  time.Time // the first output since
	waiting bool      // for that
}

// A check is of one stream.
type check struct {
	checker *pattern.Checker
	spec    pattern.Spec
	base    uint64 // where chunk 0 stands in the terminal's log
	based   bool   // base is known
	late    bool   // answers only for what comes after its greeting
	placed  bool   // the first chunk is known
	done    bool
	back    uint64 // bytes by which it was moved back: no relay may
}

// arm begins a check. As all methods below, it runs in the viewer's Do or in a
// method of the handler.
func (w *watcher) arm(a Arm) {
	spec := a.Streams[min(w.terminal, len(a.Streams)-1)]
	c := &check{spec: spec, late: a.Late}
	if w.terminal < len(a.Base) {
		c.base, c.based = a.Base[w.terminal], true
	}
	c.checker = pattern.NewChecker(spec, func(k int, at time.Time) { a.latency.Record(spec.Due(k), at) })
	if w.noSum {
		c.checker.NoSum()
	}
	if !c.late || w.here {
		c.checker.Expect(0)
		c.placed = true
	}
	w.check = c
	w.open.Add(1)
}

// Output implements [client.Handler].
func (w *watcher) Output(p []byte, at time.Time) {
	w.received.Add(int64(len(p)))
	if w.waiting {
		w.waiting, w.backAt = false, at
	}
	if c := w.check; c != nil {
		c.checker.Write(p, at)
		w.ifDone()
	}
}

func (w *watcher) ifDone() {
	if c := w.check; !c.done && c.checker.Done() {
		c.done = true
		w.open.Add(-1)
	}
}

// Jump implements [client.Handler].
func (w *watcher) Jump(j client.Jump) {
	w.here = true
	c := w.check
	if c == nil {
		return
	}
	switch {
	case !c.placed:
		c.placed = true
		if !c.based || j.To.Offset <= c.base {
			c.checker.Expect(0)
			break
		}
		// In the middle of a chunk nothing can be said about its rest.
		size := uint64(c.spec.Chunk)
		c.checker.Expect(int((j.To.Offset - c.base + size - 1) / size))
	case j.From.Epoch == j.To.Epoch && j.To.Offset > j.From.Offset && j.From != (protocol.Position{}):
		c.checker.Skip(j.From.Offset, j.To.Offset)
	case j.From.Epoch == j.To.Epoch && j.To.Offset < j.From.Offset:
		c.back += j.From.Offset - j.To.Offset
	}
	w.ifDone()
}

// Lost implements [client.Handler].
func (w *watcher) Lost(at time.Time, _ error) {
	if w.here && !w.waiting {
		w.lostAt, w.waiting = at, true
	}
}

// finish ends the check and says what came of it. One that is cut short, before
// all that is printed had its time, doesn't take for lost what is missing at the
// end.
func (w *watcher) finish(cut bool) Tally {
	c := w.check
	if c == nil {
		return Tally{}
	}
	w.check = nil
	if !c.done {
		w.open.Add(-1)
	}
	if c.late && !w.here {
		return Tally{} // it didn't get in, which is counted there
	}
	var r pattern.Report
	if cut || w.slow {
		r = c.checker.Report() // what it hasn't read yet may still come
	} else {
		r = c.checker.Finish()
	}
	t := Tally{
		Viewers: 1, Chunks: int64(r.Chunks), Bytes: r.Bytes, Lost: r.LostBytes, Corrupt: r.CorruptBytes,
		// The source is silent behind its stream, so what comes then came before.
		Duplicate: r.DuplicateBytes + r.AfterBytes,
	}
	if w.slow {
		t.Skipped = r.SkippedBytes
	} else {
		t.Lost += r.SkippedBytes
	}
	if !c.done && !cut && !w.slow {
		t.Incomplete = 1
	}
	if r.First < 0 {
		t.Silent = 1
	}
	if cut && r.First < 0 {
		t.Clean = 1 // nothing was due, or nothing says otherwise
		return t
	}
	if t.Lost == 0 && t.Duplicate == 0 && t.Corrupt == 0 && t.Incomplete == 0 && c.back == 0 && r.SumOK {
		t.Clean = 1
		return t
	}
	t.Worst = fmt.Sprintf("of a stream of %d bytes: %d lost, %d announced as skipped, %d doubled, %d corrupt, %d behind the end, moved back by %d; chunks %d to %d of %d",
		c.spec.Size(), r.LostBytes, r.SkippedBytes, r.DuplicateBytes, r.CorruptBytes, r.AfterBytes, c.back, r.First, r.Last, c.spec.Chunks)
	return t
}
