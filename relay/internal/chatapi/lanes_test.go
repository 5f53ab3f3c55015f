package chatapi

import (
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// Requests of one lane keep their order, those of several hold each other up for
// nothing, and nothing is left.
func TestLanes(t *testing.T) {
	var l lanes
	var running sync.WaitGroup
	begin := func(fn func()) bool { running.Go(fn); return true }
	gate := make(chan struct{})
	var order []int // of lane a
	add := func(lane string, do func()) {
		t.Helper()
		if !l.add(lane, do, begin) {
			t.Error("refused")
		}
	}
	add("a", func() { <-gate })
	for i := range maxWaiting - 2 {
		add("a", func() { order = append(order, i) })
	}
	done := make(chan struct{})
	add("b", func() { close(done) })
	<-done
	for l.busy("b") { // until its goroutine has noted that
	}
	add("b", func() { <-gate })
	if l.add("c", func() {}, begin) {
		t.Error("more than may wait")
	}
	close(gate)
	running.Wait()
	for i, n := range order {
		if i != n {
			t.Fatalf("%v", order)
		}
	}
	if len(order) != maxWaiting-2 || l.waiting != 0 || len(l.of) != 0 {
		t.Errorf("%d done, %d wait, %d lanes", len(order), l.waiting, len(l.of))
	}
	if l.add("a", func() {}, func(func()) bool { return false }) || l.waiting != 0 {
		t.Error("it begins after the end")
	}
}

func TestWeights(t *testing.T) {
	var w weights
	if !w.add("usr_1", maxWeight) || w.add("usr_1", 1) || !w.add("usr_2", 1) {
		t.Error("not each person's own")
	}
	w.remove("usr_1", maxWeight)
	w.remove("usr_2", 1)
	if len(w.of) != 0 || !w.add("usr_1", protocol.MaxChatFrame) {
		t.Error("something is left")
	}
}
