package lease_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol/lease"
)

func TestWindow(t *testing.T) {
	w := lease.NewWindow(2)
	for i, tt := range []struct {
		client string
		seq    uint64
		fresh  bool
	}{
		{"a", 5, true},
		{"a", 5, false},
		{"a", 4, false},
		{"a", 6, true},
		{"b", 1, true},
		{"a", 6, false},             // b is silent longest now
		{"c", 0, true},              // a first number is fresh, 0 too
		{"c", 0, false},             // but once
		{"a", 6, false},             // not forgotten: b was
		{"b", 1, true},              // forgotten
		{"b", math.MaxUint64, true}, // the last there is
		{"b", math.MaxUint64, false},
		{"b", 0, false},
	} {
		if fresh := w.Accept(tt.client, tt.seq); fresh != tt.fresh {
			t.Fatalf("step %d: %s %d fresh: %v", i, tt.client, tt.seq, fresh)
		}
	}
	if last, ok := w.Last("a"); !ok || last != 6 {
		t.Fatalf("last of a: %d, %v", last, ok)
	}
	if _, ok := w.Last("c"); ok {
		t.Fatal("c is remembered")
	}
}

func TestWindowOfNone(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		w := lease.NewWindow(n)
		if !w.Accept("a", 1) || w.Accept("a", 1) {
			t.Fatalf("a window of %d", n)
		}
	}
}

// TestWindowModel compares with a list of clients, the latest heard last.
func TestWindowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		w := lease.NewWindow(size)
		last := map[string]uint64{}
		var heard []string
		t.Repeat(map[string]func(*rapid.T){
			"accept": func(t *rapid.T) {
				client := fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "client"))
				seq := rapid.Uint64Range(0, 20).Draw(t, "seq")
				before, known := last[client]
				if i := slices.Index(heard, client); i >= 0 {
					heard = slices.Delete(heard, i, i+1)
				}
				heard = append(heard, client)
				last[client] = max(seq, before)
				if len(heard) > size {
					delete(last, heard[0])
					heard = heard[1:]
				}
				if fresh := w.Accept(client, seq); fresh != (!known || seq > before) {
					t.Fatalf("%s %d after %d, %v: %v", client, seq, before, known, fresh)
				}
			},
			"": func(t *rapid.T) {
				for i := range 7 {
					want, known := last[fmt.Sprint(i)]
					if got, ok := w.Last(fmt.Sprint(i)); got != want || ok != known {
						t.Fatalf("last of %d: %d, %v, want %d, %v", i, got, ok, want, known)
					}
				}
			},
		})
	})
}

// TestWindowAllocates checks that a keystroke of a known client costs nothing.
func TestWindowAllocates(t *testing.T) {
	w := lease.NewWindow(8)
	var seq uint64
	w.Accept("a", seq)
	if n := testing.AllocsPerRun(100, func() { seq++; w.Accept("a", seq) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
