package quiet

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
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
	Yield() // it waits now
	const keys = 1000
	late := 0
	for i := range int64(keys) {
		if _, err := far.Write([]byte("k")); err != nil {
			t.Fatal(err)
		}
		Yield()
		for ; heard.Load() != i+1; late++ {
			Yield()
		}
	}
	if late > keys/20 { // now and then the scheduler begins with who has waited longest
		t.Errorf("%d of %d keys are read late", late, keys)
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
				Yield()
			}
			done <- struct{}{}
		}()
	}
	for range 16 {
		<-done
	}
}

func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func BenchmarkYield(b *testing.B) {
	for _, c := range []struct {
		name string
		do   func()
	}{{"gosched", runtime.Gosched}, {"yield", Yield}} {
		b.Run(c.name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			for b.Loop() {
				c.do()
			}
		})
	}
}
