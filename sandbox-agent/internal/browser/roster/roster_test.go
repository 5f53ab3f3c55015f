package roster

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// TestRoster: numbers never come back, the bound holds, and there is an active tab
// whenever one is open.
func TestRoster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Roster
		closed := map[int]bool{}
		highest := 0
		taken := func(tab int, err error) {
			switch {
			case err != nil && !errors.Is(err, ErrFull) && protocol.KindOf(err) != protocol.KindNotFound:
				t.Fatal(err)
			case err == nil && closed[tab]:
				t.Fatalf("tab %d came back", tab)
			case err == nil:
				highest = max(highest, tab)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				tab, err := r.Open()
				if err == nil && tab <= highest {
					t.Fatalf("tab %d was there before", tab)
				}
				taken(tab, err)
			},
			"get": func(t *rapid.T) {
				w := Want{rapid.IntRange(-1, highest+3).Draw(t, "tab"), rapid.Bool().Draw(t, "bound")}
				tab, err := r.Get(w)
				if err == nil && w.Tab != 0 && tab != w.Tab {
					t.Fatalf("%v got %d", w, tab)
				}
				if err == nil && !slices.Contains(r.List(), tab) {
					t.Fatalf("%d isn't open", tab)
				}
				taken(tab, err)
			},
			"close": func(t *rapid.T) {
				if tab, err := r.Close(rapid.IntRange(0, highest+1).Draw(t, "tab")); err == nil {
					closed[tab] = true
				}
			},
			"switch": func(t *rapid.T) {
				tab := rapid.IntRange(0, highest+1).Draw(t, "tab")
				if err := r.Switch(tab); err == nil && r.Active() != tab {
					t.Fatalf("%d is active, want %d", r.Active(), tab)
				}
			},
			"sleep": func(*rapid.T) { r.Sleep() },
			"": func(t *rapid.T) {
				open := r.List()
				if len(open) > Max || len(r.asleep) > maxAsleep {
					t.Fatalf("%d open, %d asleep", len(open), len(r.asleep))
				}
				if len(open) > 0 && !slices.Contains(open, r.Active()) {
					t.Fatalf("%d is active of %v", r.Active(), open)
				}
				for tab := range closed {
					if !r.Closed(tab) {
						t.Fatalf("tab %d isn't closed", tab)
					}
				}
			},
		})
	})
}

// TestAcross: what is bound to a tab has it again with the next Chromium, and after
// a restart of the agent.
func TestAcross(t *testing.T) {
	var r Roster
	first, _ := r.Get(Want{})
	second, _ := r.Open()
	if err := r.Switch(second); err != nil {
		t.Fatal(err)
	}
	r.Sleep()
	if got := fmt.Sprint(r.List(), r.Active()); got != "[] 2" {
		t.Error(got)
	}
	if tab, err := r.Get(Want{Tab: first}); tab != 1 || err != nil || r.Active() != 1 {
		t.Errorf("%d %v, %d is active", tab, err, r.Active())
	}
	if third, err := r.Open(); third != 3 || err != nil {
		t.Errorf("%d %v", third, err)
	}
	var later Roster // of the next agent
	if tab, err := later.Get(Want{3, true}); tab != 3 || err != nil {
		t.Errorf("%d %v", tab, err)
	}
	if tab, err := later.Get(Want{1, true}); tab != 1 || err != nil {
		t.Errorf("%d %v", tab, err)
	}
	for _, w := range []Want{{Tab: 4}, {Tab: -1}, {-1, true}, {MaxID + 1, true}} {
		if tab, err := later.Get(w); protocol.KindOf(err) != protocol.KindNotFound {
			t.Errorf("%v: %d %v", w, tab, err)
		}
	}
	if tab, err := later.Open(); tab != 4 || err != nil {
		t.Errorf("%d %v", tab, err)
	}
}

// TestClose: the neighbour of the active tab is active, and the last one can be
// closed.
func TestClose(t *testing.T) {
	var r Roster
	for range 3 {
		if _, err := r.Open(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ tab, closed, active int }{{2, 2, 1}, {0, 1, 3}, {0, 3, 0}} {
		if tab, err := r.Close(c.tab); tab != c.closed || err != nil || r.Active() != c.active {
			t.Errorf("%+v: %d %v, %d is active", c, tab, err, r.Active())
		}
	}
	if _, err := r.Close(0); protocol.KindOf(err) != protocol.KindNotFound {
		t.Error(err)
	}
	if tab, err := r.Get(Want{}); tab != 4 || err != nil {
		t.Errorf("%d %v", tab, err)
	}
}
