package feed

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLeave: in whatever order readers come and leave, output is offered once to
// each who is here and to nobody else, and those who have left are kept no longer
// than they are fewer than the others.
func TestLeave(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFeed()
		var here, left []*Reader
		for range rapid.IntRange(1, 60).Draw(rt, "changes") {
			if len(here) == 0 || rapid.IntRange(0, 2).Draw(rt, "leaves") == 0 {
				here = append(here, attach(t, f))
			} else {
				i := rapid.IntRange(0, len(here)-1).Draw(rt, "who")
				here[i].Detach()
				here[i].Detach() // again is nothing
				left, here = append(left, here[i]), append(here[:i], here[i+1:]...)
			}
			count := func(readers []*Reader) (pushes, wakes int) {
				for _, r := range readers {
					pushes, wakes = pushes+r.consumer.(*consumer).pushes, wakes+r.consumer.(*consumer).wakes
				}
				return pushes, wakes
			}
			pushes, wakes := count(here)
			gonePushes, goneWakes := count(left)
			f.Deliver(push)
			f.mu.Lock()
			f.wakeAll()
			f.mu.Unlock()
			if p, w := count(here); p != pushes+len(here) || w != wakes+len(here) {
				rt.Fatalf("%d pushes and %d wakes of %d readers", p-pushes, w-wakes, len(here))
			}
			if p, w := count(left); p != gonePushes || w != goneWakes {
				rt.Fatal("one who has left is offered output")
			}
			if n := len(f.readers); n > 2*len(here) || n > 0 && len(here) == 0 {
				rt.Fatalf("%d are kept of %d", n, len(here))
			}
		}
	})
}

// TestLeaveUnattached: one who leaves before it was attached takes no place.
func TestLeaveUnattached(t *testing.T) {
	f := newFeed()
	attach(t, f)
	r := &Reader{}
	r.Init(f, &consumer{}, Start{}, true, false)
	r.Detach()
	if len(f.readers) != 1 || f.gone != 0 {
		t.Errorf("%d readers, %d gone", len(f.readers), f.gone)
	}
}
