package quiet_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/tunnel/quiet"
)

// TestYieldSeesSockets: with one processor, who waits for a socket runs between two
// pieces of another's work.
func TestYieldSeesSockets(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	near, far := pair(t)
	var heard atomic.Int64
	ended := make(chan struct{})
	go func() { // ends with near
		defer close(ended)
		for p := make([]byte, 1); ; heard.Add(1) {
			if _, err := near.Read(p); err != nil {
				return
			}
		}
	}()
	quiet.Yield() // it waits now
	const keys = 1000
	late := 0
	for i := range int64(keys) {
		if _, err := far.Write([]byte("k")); err != nil {
			t.Fatal(err)
		}
		quiet.Yield()
		for ; heard.Load() != i+1; late++ {
			quiet.Yield()
		}
	}
	// Now and then the scheduler begins with who has waited longest, and on a machine with
	// much load it takes the processor from the reader. Gosched alone needs thousands.
	if late > 10*keys {
		t.Errorf("%d keys are read %d yields late", keys, late)
	}
	near.Close()
	<-ended
}

// TestYieldOfMany: whoever yields goes on, however many do.
func TestYieldOfMany(t *testing.T) {
	done := make(chan struct{})
	for range 16 {
		go func() { // ends by itself
			for range 1000 {
				quiet.Yield()
			}
			done <- struct{}{}
		}()
	}
	for range 16 {
		<-done
	}
}

func BenchmarkYield(b *testing.B) {
	for _, c := range []struct {
		name string
		do   func()
	}{{"gosched", runtime.Gosched}, {"yield", quiet.Yield}} {
		b.Run(c.name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			for b.Loop() {
				c.do()
			}
		})
	}
}
