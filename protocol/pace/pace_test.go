package pace

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	lag   = uint64(protocol.MaxPaceLag)
	grace = protocol.ControlGrace
	slow  = protocol.SlowAfter
)

// epoch is the time at which every test begins.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func wantRead(t *testing.T, g *Gate, head uint64, after time.Duration, want bool) {
	t.Helper()
	if got := g.MayRead(head, at(after)); got != want {
		t.Fatalf("after %v at %d: may read %v, want %v", after, head, got, want)
	}
}

func wantDeadline(t *testing.T, g *Gate, head uint64, after time.Duration) {
	t.Helper()
	if got, ok := g.Deadline(head); !ok || !got.Equal(at(after)) {
		t.Fatalf("deadline %v %v, want %v", got.Sub(epoch), ok, after)
	}
}

func TestNobodyHoldsBack(t *testing.T) {
	g := new(Gate)
	wantRead(t, g, 1<<40, 0, true)
	if d, ok := g.Deadline(1 << 40); ok {
		t.Fatalf("deadline %v", d)
	}
	if p := g.Pacers(epoch); p != nil {
		t.Fatalf("pacers %v", p)
	}
}

func TestSlowestCounts(t *testing.T) {
	g := new(Gate)
	g.Set(1, "a", 0, 0, epoch)
	g.Set(1, "b", 100, 100, epoch)
	wantRead(t, g, lag-1, 0, true)
	wantRead(t, g, lag, 0, false)
	wantDeadline(t, g, lag, slow)
	g.Set(1, "b", lag, lag, epoch)
	wantRead(t, g, lag, 0, false) // a still
	g.Set(1, "a", 1, lag, epoch)
	wantRead(t, g, lag, 0, true)
	wantRead(t, g, lag+1, 0, false)
	g.Gone(2, "a") // another stream can't speak for it
	wantRead(t, g, lag+1, 0, false)
	g.Gone(1, "a")
	wantRead(t, g, lag+1, 0, true)
}

// TestSlow: one that takes too little for SlowAfter loses the role until it has
// caught up.
func TestSlow(t *testing.T) {
	for _, tt := range []struct {
		name string
		took uint64 // in SlowAfter
		slow bool
	}{
		{"nothing", 0, true},
		{"too little", uint64(minProgress) - 1, true},
		{"just enough", uint64(minProgress), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := new(Gate)
			g.Set(1, "a", 0, 0, epoch)
			head := lag + uint64(minProgress)
			wantRead(t, g, head, 0, false)
			g.Set(1, "a", tt.took, head, at(slow-1))
			wantRead(t, g, head, slow-1, false)
			wantRead(t, g, head, slow, tt.slow)
			if !tt.slow {
				wantDeadline(t, g, head, 2*slow) // measured anew
				return
			}
			if len(g.Pacers(at(slow))) != 1 {
				t.Error("a slow one is no longer listed")
			}
			head += 10 * lag
			wantRead(t, g, head, time.Hour, true)
			g.Set(1, "a", head-lag/2, head, at(time.Hour))
			wantRead(t, g, head+lag, time.Hour, true)
			g.Set(1, "a", head-lag/2+1, head, at(time.Hour)) // caught up: it has the role again
			wantRead(t, g, head+lag, time.Hour, false)
		})
	}
}

// TestSlowInSteps: reports that let a little be read each time don't hide that
// the pace is a phone's.
func TestSlowInSteps(t *testing.T) {
	g := new(Gate)
	const rate = 64 << 10 // bytes each second
	offset, head := uint64(0), lag
	g.Set(1, "a", offset, 0, epoch)
	for s := time.Duration(0); ; s += time.Second {
		if g.MayRead(head, at(s)) {
			if s != slow {
				t.Fatalf("free after %v", s)
			}
			return
		}
		offset += rate
		g.Set(1, "a", offset, head, at(s+time.Second-1))
		wantRead(t, g, head, s+time.Second-1, true)
		head += rate // is printed at once
	}
}

// TestFastIsNeverSlow: one that takes MinPaceRate holds the terminal for as long
// as it needs.
func TestFastIsNeverSlow(t *testing.T) {
	g := new(Gate)
	offset, head := uint64(0), lag
	g.Set(1, "a", offset, 0, epoch)
	for s := time.Duration(0); s < time.Minute; s += 500 * time.Millisecond {
		wantRead(t, g, head, s, false)
		offset += protocol.PaceBytes
		g.Set(1, "a", offset, head, at(s+500*time.Millisecond))
		head += protocol.PaceBytes
	}
}

func TestGoingBackIsNoProgress(t *testing.T) {
	g := new(Gate)
	g.Set(1, "a", 1000, 1000, epoch)
	wantRead(t, g, 1000+lag, 0, false)
	g.Set(1, "a", 0, 1000+lag, at(time.Second))
	wantRead(t, g, 1000+lag, slow, true)
}

// TestAbsent: who left with a lost tunnel keeps the place, whether back on
// another stream or not, for the grace.
func TestAbsent(t *testing.T) {
	for name, end := range map[string]func(g *Gate){
		"leave": func(g *Gate) { g.Leave(1, epoch) },
		"lose":  func(g *Gate) { g.Lose(1, lag, epoch) },
	} {
		t.Run(name, func(t *testing.T) {
			g := new(Gate)
			g.Set(1, "a", 0, 0, epoch)
			g.Set(1, "b", 7, lag, epoch)
			end(g)
			g.Found()
			wantRead(t, g, lag, 0, false)
			wantRead(t, g, lag, grace-1, false) // an absent one isn't slow
			wantDeadline(t, g, lag, grace)
			if p := g.Pacers(at(grace - 1)); !slices.Equal(p, []protocol.Pacer{{ID: "a"}, {ID: "b", Offset: 7}}) {
				t.Fatalf("pacers %v", p)
			}
			g.Set(2, "b", 9, lag, at(grace-1))
			wantRead(t, g, 8+lag, grace-1, false)
			wantRead(t, g, 8+lag, grace, true) // a's place is given up, b is there
			wantRead(t, g, 9+lag, grace, false)
			if p := g.Pacers(at(grace)); !slices.Equal(p, []protocol.Pacer{{ID: "b", Offset: 9}}) {
				t.Fatalf("pacers %v", p)
			}
			g.Gone(1, "b")
			wantRead(t, g, 9+lag, grace, false)
		})
	}
}

// TestMoved: the new stream of a pace-setter may come before its old one ends.
func TestMoved(t *testing.T) {
	g := new(Gate)
	g.Set(1, "a", 5, 5, epoch)
	g.Set(2, "a", 3, 5, epoch)
	g.Leave(1, epoch)
	if p := g.Pacers(at(time.Hour)); !slices.Equal(p, []protocol.Pacer{{ID: "a", Offset: 3}}) {
		t.Fatalf("pacers %v", p)
	}
}

func TestLostTunnel(t *testing.T) {
	g := new(Gate)
	g.Lose(1, 100, epoch)
	wantRead(t, g, 100+protocol.MaxUnsent-1, 0, true)
	wantRead(t, g, 100+protocol.MaxUnsent, 0, false)
	wantDeadline(t, g, 100+protocol.MaxUnsent, grace)
	wantRead(t, g, 100+protocol.MaxUnsent, grace-1, false)
	wantRead(t, g, 100+protocol.MaxUnsent, grace, true)
	g.Lose(2, 100, at(grace))
	wantRead(t, g, 100+protocol.MaxUnsent, grace, false)
	g.Found()
	wantRead(t, g, 100+protocol.MaxUnsent, grace, true)
}

func TestBound(t *testing.T) {
	g := new(Gate)
	for i := range protocol.MaxPacers {
		if !g.Set(1, fmt.Sprint(i), 0, 0, epoch) {
			t.Fatalf("the %dth was refused", i)
		}
	}
	if g.Set(1, "more", 0, 0, epoch) {
		t.Fatal("one too many was taken")
	}
	if !g.Set(2, "0", 0, 0, epoch) {
		t.Fatal("one that is known was refused")
	}
	g.Leave(1, epoch)
	if !g.Set(2, "more", 0, 0, at(grace)) {
		t.Fatal("the absent keep their place beyond the grace")
	}
}

func TestOffsetBeyondTheHead(t *testing.T) {
	g := new(Gate)
	g.Set(1, "a", 1<<60, 10, epoch)
	if p := g.Pacers(epoch); p[0].Offset != 10 {
		t.Fatalf("pacers %v", p)
	}
	wantRead(t, g, 10+lag, 0, false)
}
