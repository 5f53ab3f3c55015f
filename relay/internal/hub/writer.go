package hub

import (
	"context"
	"sync"
	"sync/atomic"
)

// A writer runs a socket's turns, one at a time, on a goroutine that ends when
// nothing waits. The zero value takes note of being woken, and begins later.
type writer struct {
	state atomic.Int32  // one of the states below
	ended chan struct{} // closed by the last goroutine, if there is one at the end
	turn  func() bool   // writes what waits; false: the socket is over

	// Set by start before begin.
	unhub func() bool // has it not be told of the hub's end
	alive keepalive

	// Owned by the turn, and by end after the last one.
	filling *filling // nil until there is a gap to fill
}

// A filling is what fills a viewer's gaps.
type filling struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// fill runs do until it is over or the writer ends. Turns alone call it.
func (w *writer) fill(do func(context.Context)) {
	if w.filling == nil {
		w.filling = &filling{}
		w.filling.ctx, w.filling.cancel = context.WithCancel(context.Background())
	}
	w.filling.running.Go(func() { do(w.filling.ctx) })
}

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
func (w *writer) begin(turn func() bool) {
	w.turn, w.ended = turn, make(chan struct{})
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
	for w.turn() {
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

// end has no turn begin any more, and waits for the present one, and for what fills
// gaps. It is called once.
func (w *writer) end() {
	if w.state.Swap(writerOver) != writerIdle {
		<-w.ended
	}
	if f := w.filling; f != nil {
		f.cancel()
		f.running.Wait()
	}
}
