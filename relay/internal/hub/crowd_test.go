package hub

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// counts passes over what the agent hears until it was told n sockets. It fails
// when it is told what never was.
func (a *attach) counts(n int, never ...int) {
	a.t.Helper()
	for {
		got := hears[protocol.Audience](a).Sockets
		if got == n {
			return
		}
		for _, bad := range never {
			if got == bad {
				a.t.Fatalf("the agent was told %d sockets on the way to %d", got, n)
			}
		}
	}
}

// TestCrowd: the agent is told of each socket that comes and goes, and never that
// nobody is there while a socket opens the terminal or comes back.
func TestCrowd(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{})
	grant, token := w.authority.Grant(alice)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	handle, err := w.set.Open(ctx, testKey, grant, token)
	if err != nil {
		t.Fatal(err)
	}
	agent := w.attached()
	agent.counts(1, 0) // before the socket is a viewer
	x := w.sit(handle, grant, token, nil)
	x.greeted()
	y := w.join(carol, nil)
	y.greeted()
	agent.counts(2, 0)
	x.leave()
	agent.counts(1, 0)

	w.connect() // the tunnel is lost; carol's socket stays
	agent.stream.Close()
	again := w.attached()
	again.counts(1, 0)
	y.leave()
	again.counts(0)
	z := w.join(bob, nil) // the hub is idle and has its stream
	again.counts(1)
	z.leave()
	again.counts(0)
}

// TestCrowdIsLeftAlone: a relay that goes away doesn't say that its viewers have
// gone. They come back elsewhere.
func TestCrowdIsLeftAlone(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{})
	x := w.join(alice, nil)
	x.greeted()
	agent := w.attached()
	agent.counts(1, 0)
	closing := make(chan struct{})
	go func() { // waited for below
		defer close(closing)
		w.set.Close(t.Context())
	}()
	x.until(closed)
	x.leave()
	<-closing
	for m := range agent.heard {
		if count, ok := m.(protocol.Audience); ok && count.Sockets == 0 {
			t.Error("the agent was told that nobody is there")
		}
	}
}

// TestCrowdInAStorm: however many come within a moment, the agent is told a few
// times; whether anybody is there, at once.
func TestCrowdInAStorm(t *testing.T) {
	h, now := still(), time.Now()
	h.link = deafLink(t)
	told := func(n int, after time.Duration) (counts []int) {
		now = now.Add(after)
		h.ticked = now
		h.crowd.is(n)
		h.tellCrowd(now)
		for _, m := range sent(t, h.link) {
			counts = append(counts, m.(protocol.Audience).Sockets)
		}
		h.link.Take()
		return counts
	}
	var all []int
	for n := range 1001 {
		all = append(all, told(n, crowdInterval/500)...)
	}
	if !slices.Equal(all, []int{0, 1, 501}) {
		t.Errorf("told %d", all)
	}
	if wait := h.untilTick(now); wait <= 0 || wait > crowdInterval {
		t.Errorf("looks again in %v", wait)
	}
	if got := told(1000, crowdInterval); !slices.Equal(got, []int{1000}) {
		t.Errorf("told %d in the end", got)
	}
	for _, n := range []int{0, 1} {
		if got := told(n, 0); !slices.Equal(got, []int{n}) {
			t.Errorf("told %d of %d", got, n)
		}
	}
	if wait := h.untilTick(now); wait != time.Hour {
		t.Errorf("looks again in %v, with nothing to tell", wait)
	}
}
