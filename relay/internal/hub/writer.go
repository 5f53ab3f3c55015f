package hub

import "sync/atomic"

// A writer runs a socket's turns, one at a time, on a goroutine that ends when
// nothing waits. The zero value takes note of being woken, and begins later.
type writer struct {
	state atomic.Int32  // one of the states below
	ended chan struct{} // closed by the last goroutine, if there is one at the end
	task  task          // static after begin
}

// A task is what a writer does.
type task interface {
	// turn writes what waits, and reports whether there may be more some day.
	turn() (goOn bool)
}

// A turnFunc is a task that is one function.
type turnFunc func() bool

func (f turnFunc) turn() bool { return f() }

// States of a writer. Only who makes it busy from idle starts the goroutine, which
// only the goroutine itself makes idle again.
const (
	writerNew   = iota // before begin, woken or not
	writerIdle         // no goroutine
	writerBusy         // the goroutine writes
	writerAgain        // it was woken meanwhile: one more turn
	writerOver         // nothing is written any more
)

// begin starts with a first turn: something may wait since before.
func (w *writer) begin(t task) {
	w.task, w.ended = t, make(chan struct{})
	w.state.Store(writerBusy)
	go w.run() // end waits for it
}

// wake has a turn begin after now. It never blocks: callers hold locks.
func (w *writer) wake() {
	for {
		switch state := w.state.Load(); state {
		case writerIdle:
			if w.state.CompareAndSwap(writerIdle, writerBusy) {
				go w.run() // end waits for it
				return
			}
		case writerBusy:
			if w.state.CompareAndSwap(writerBusy, writerAgain) {
				return
			}
		default:
			return
		}
	}
}

// run takes turns until none is due.
func (w *writer) run() {
	for w.task.turn() {
		if w.state.CompareAndSwap(writerBusy, writerIdle) {
			return
		}
		if !w.state.CompareAndSwap(writerAgain, writerBusy) { // it is over
			close(w.ended)
			return
		}
	}
	w.state.Store(writerOver)
	close(w.ended)
}

// end has no turn begin any more, and waits for the present one. It is called once.
func (w *writer) end() {
	if w.state.Swap(writerOver) != writerIdle {
		<-w.ended
	}
}
