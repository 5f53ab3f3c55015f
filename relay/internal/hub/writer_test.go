package hub

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// After each wake-up a turn begins, turns never overlap, and there is a goroutine
// only while there is something to do.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writer
		var waiting, running, turns atomic.Int64
		begin := make(chan struct{})
		w.wake() // before it begins: the first turn is anyway
		waiting.Store(1)
		w.begin(turnFunc(func() bool {
			if running.Add(1) != 1 {
				t.Error("two turns at a time")
			}
			defer running.Add(-1)
			turns.Add(1)
			waiting.Store(0)
			<-begin
			return true
		}))
		synctest.Wait()
		waiting.Store(1) // the turn has taken what there was
		w.wake()
		w.wake()
		close(begin)
		synctest.Wait()
		if turns.Load() != 2 || waiting.Load() != 0 || w.state.Load() != writerIdle {
			t.Fatalf("%d turns, %d wait, state %d", turns.Load(), waiting.Load(), w.state.Load())
		}
		var wakers sync.WaitGroup
		for range 8 {
			wakers.Go(func() {
				for range 1000 {
					waiting.Store(1)
					w.wake()
				}
			})
		}
		wakers.Wait()
		synctest.Wait()
		if waiting.Load() != 0 || w.state.Load() != writerIdle {
			t.Errorf("something waits still, state %d", w.state.Load())
		}
		w.end()
		w.wake()
		synctest.Wait()
		if w.state.Load() != writerOver || waiting.Load() != 0 {
			t.Errorf("state %d", w.state.Load())
		}
	})
}

// The end waits for a turn under way, also for one that finds the socket over, and
// for none that nobody takes.
func TestWriterEnds(t *testing.T) {
	for name, over := range map[string]bool{"in a turn": false, "in its last turn": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w writer
				done := atomic.Bool{}
				w.begin(turnFunc(func() bool {
					time.Sleep(time.Second) // of the bubble
					done.Store(true)
					return !over
				}))
				w.wake()
				w.end()
				if !done.Load() {
					t.Error("it didn't wait")
				}
				synctest.Wait() // no goroutine is left, or the bubble fails
			})
		})
	}
}
