package lineup

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A world compares a Lineup with lists that say the same more simply.
type world struct {
	lineup  Lineup[int]
	now     time.Time
	next    int
	running map[Tab]time.Time
	waiting map[Tab][]int
	ran     map[Tab][]int // in which order messages ran
	sent    map[Tab][]int // those that were neither refused nor taken out
}

var tabs = rapid.SampledFrom([]Tab{1, 2, 7})

func (w *world) accept(t *rapid.T) {
	tab := tabs.Draw(t, "tab")
	w.next++
	_, busy := w.running[tab]
	at, err := w.lineup.Accept(tab, w.next, w.now)
	switch {
	case !busy:
		if at != 0 || err != nil {
			t.Fatalf("tab %d is idle, and says %d, %v", tab, at, err)
		}
		w.running[tab] = w.now
		w.ran[tab] = append(w.ran[tab], w.next)
	case len(w.waiting[tab]) == MaxWaiting:
		if !errors.Is(err, ErrFull) {
			t.Fatalf("tab %d is full, and says %d, %v", tab, at, err)
		}
		return
	default:
		w.waiting[tab] = append(w.waiting[tab], w.next)
		if at != len(w.waiting[tab]) || err != nil {
			t.Fatalf("tab %d: %d, %v; %v wait", tab, at, err, w.waiting[tab])
		}
	}
	w.sent[tab] = append(w.sent[tab], w.next)
}

func (w *world) taken(t *rapid.T) {
	tab := tabs.Draw(t, "tab")
	_, busy := w.running[tab]
	if w.lineup.Taken(tab, w.now) == busy {
		t.Fatalf("tab %d: busy is %t", tab, busy)
	}
	if !busy {
		w.running[tab] = w.now
	}
}

func (w *world) over(t *rapid.T) {
	tab := tabs.Draw(t, "tab")
	next, runs := w.lineup.Over(tab, w.now)
	if want := len(w.waiting[tab]) > 0; runs != want || runs && next != w.waiting[tab][0] {
		t.Fatalf("tab %d: %d, %t; %v wait", tab, next, runs, w.waiting[tab])
	}
	delete(w.running, tab)
	if runs {
		w.running[tab] = w.now
		w.waiting[tab] = w.waiting[tab][1:]
		w.ran[tab] = append(w.ran[tab], next)
	}
}

func (w *world) stop(t *rapid.T) {
	tab := tabs.Draw(t, "tab")
	_, busy := w.running[tab]
	runs, dropped := w.lineup.Stop(tab)
	if runs != busy || !slices.Equal(dropped, w.waiting[tab]) {
		t.Fatalf("tab %d: %t, %v; %v wait", tab, runs, dropped, w.waiting[tab])
	}
	for _, m := range dropped {
		w.forget(tab, m)
	}
	w.waiting[tab] = nil
}

func (w *world) dismiss(t *rapid.T) {
	tab, index := tabs.Draw(t, "tab"), rapid.IntRange(-1, MaxWaiting).Draw(t, "index")
	m, ok := w.lineup.Dismiss(tab, index)
	if want := index >= 0 && index < len(w.waiting[tab]); ok != want || ok && m != w.waiting[tab][index] {
		t.Fatalf("tab %d, %d: %d, %t; %v wait", tab, index, m, ok, w.waiting[tab])
	}
	if ok {
		w.waiting[tab] = slices.Delete(slices.Clone(w.waiting[tab]), index, index+1)
		w.forget(tab, m)
	}
}

func (w *world) forget(tab Tab, m int) {
	w.sent[tab] = slices.DeleteFunc(w.sent[tab], func(other int) bool { return other == m })
}

func (w *world) wait(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
}

// check: each tab stands as its lists say, whatever happens in others, and what was
// sent runs in its order, each once.
func (w *world) check(t *rapid.T) {
	var busy []Tab
	for _, tab := range []Tab{1, 2, 7} {
		since, runs := w.running[tab]
		want := Idle
		if runs {
			busy = append(busy, tab)
			if want = Processing; w.now.Sub(since) >= HungAfter {
				want = Hung
			}
		}
		if s := w.lineup.Status(tab, w.now); s.State != want || !s.Since.Equal(since) || !slices.Equal(s.Waiting, w.waiting[tab]) {
			t.Fatalf("tab %d: %+v, want %s since %s, %v", tab, s, want, since, w.waiting[tab])
		}
		if all := slices.Concat(w.ran[tab], w.waiting[tab]); !slices.Equal(all, w.sent[tab]) {
			t.Fatalf("tab %d: %v ran and %v wait of %v", tab, w.ran[tab], w.waiting[tab], w.sent[tab])
		}
	}
	if got := w.lineup.Busy(); !slices.Equal(got, busy) {
		t.Fatalf("%v are busy, want %v", got, busy)
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: time.Unix(1e9, 0), running: map[Tab]time.Time{}, waiting: map[Tab][]int{}, ran: map[Tab][]int{}, sent: map[Tab][]int{}}
		t.Repeat(map[string]func(*rapid.T){
			"": w.check, "accept": w.accept, "accept again": w.accept, "taken": w.taken, "over": w.over, "stop": w.stop, "dismiss": w.dismiss, "wait": w.wait,
		})
	})
}

// An eighth message of a tab has no place, one in another tab runs at once.
func TestEighth(t *testing.T) {
	var l Lineup[int]
	now := time.Unix(1e9, 0)
	for i := range 1 + MaxWaiting {
		if at, err := l.Accept(1, i, now); at != i || err != nil {
			t.Errorf("message %d: %d, %v", i, at, err)
		}
	}
	for range 2 {
		if _, err := l.Accept(1, 9, now); !errors.Is(err, ErrFull) || err.Error() != "Queue full (max 5)" {
			t.Errorf("%v", err)
		}
	}
	if at, err := l.Accept(2, 9, now); at != 0 || err != nil {
		t.Errorf("another tab: %d, %v", at, err)
	}
}
