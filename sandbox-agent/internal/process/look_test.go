package process

import (
	"os"
	"slices"
	"sync"
	"testing"
)

// TestLookIsShared: who asks while somebody waits for a walk gets that walk; who
// asks once it has begun gets the next one.
func TestLookIsShared(t *testing.T) {
	var o lookout
	o.walking.Lock() // somebody else's walk is under way
	const all = 100
	looks := make([]*look, all)
	var asking, asked sync.WaitGroup
	asking.Add(all)
	for i := range looks {
		asked.Go(func() {
			asking.Done()
			looks[i] = o.ask()
		})
	}
	asking.Wait()
	for waits := false; !waits; {
		o.mu.Lock()
		waits = o.next != nil
		o.mu.Unlock()
	}
	o.walking.Unlock()
	asked.Wait()
	for _, l := range looks {
		if !slices.ContainsFunc(l.all, func(s Stat) bool { return s.PID == os.Getpid() }) {
			t.Fatal("we are not there")
		}
	}
	if o.ask() == looks[0] {
		t.Error("a look at what was")
	}
}

func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		machine.ask()
	}
}
