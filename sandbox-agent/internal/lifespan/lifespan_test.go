package lifespan

import (
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// TestAbsence: since when nobody watches.
func TestAbsence(t *testing.T) {
	const grace = protocol.ControlGrace
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for name, tt := range map[string]struct {
		do   func(a *Audience)
		want Absence
	}{
		"nobody ever":          {func(*Audience) {}, Absence{true, at(0), true}},
		"a relay says no word": {func(a *Audience) { a.Open() }, Absence{}},
		"one watches":          {func(a *Audience) { a.Say(a.Open(), 1, at(1)) }, Absence{}},
		"one has left": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 1, at(1))
			a.Say(s, 0, at(2))
		}, Absence{true, at(2), false}},
		"the stream ends later": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 0, at(2))
			a.Close(s, at(3))
		}, Absence{true, at(2), false}},
		"the stream is lost": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 2, at(1))
			a.Close(s, at(3))
		}, Absence{true, at(3 + grace), false}},
		"lost without a word": {func(a *Audience) { a.Close(a.Open(), at(3)) }, Absence{true, at(3 + grace), false}},
		"one of two comes back": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 2, at(1))
			a.Close(s, at(3))
			s = a.Open()
			a.Say(s, 1, at(4))
			a.Say(s, 0, at(5))
		}, Absence{true, at(3 + grace), false}},
		"both come back": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 2, at(1))
			a.Close(s, at(3))
			s = a.Open()
			a.Say(s, 1, at(4))
			a.Say(s, 2, at(4))
			a.Say(s, 0, at(5))
		}, Absence{true, at(5), false}},
		"at another relay": {func(a *Audience) {
			s, other := a.Open(), a.Open()
			a.Say(s, 1, at(1))
			a.Say(other, 1, at(1))
			a.Say(s, 0, at(2))
		}, Absence{}},
		"long after a loss": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 2, at(1))
			a.Close(s, at(3))
			s = a.Open()
			a.Say(s, 1, at(4+grace))
			a.Close(s, at(5+grace))
			a.Say(a.Open(), 1, at(6+grace))
			a.Say(s, 5, at(6+grace)) // it is over
			a.Say(3, 0, at(7+grace))
		}, Absence{true, at(7 + grace), false}},
		"nonsense": {func(a *Audience) {
			s := a.Open()
			a.Say(s, 1<<62, at(1))
			a.Say(s, -5, at(2))
			a.Say(s+1, 1, at(2))
			a.Close(s+1, at(2))
		}, Absence{true, at(2), false}},
	} {
		a := NewAudience(start)
		tt.do(&a)
		if got := a.Absence(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// A shot is what a terminal gets, and when.
type shot struct {
	at      time.Duration
	signals []syscall.Signal
}

// run lets e have its way until d, and returns what the terminal gets.
func run(e *Ending, d time.Duration) (shots []shot) {
	for {
		next, ok := e.Deadline()
		if !ok || next.Sub(start) > d {
			return shots
		}
		if signals := e.Signals(next); len(signals) > 0 {
			shots = append(shots, shot{next.Sub(start), signals})
		}
	}
}

// TestManners: each manner of ending, signal by signal.
func TestManners(t *testing.T) {
	const s = time.Second
	nobody := Absence{Nobody: true, Since: start}
	for name, tt := range map[string]struct {
		on                op.OnDetach
		do                func(e *Ending)
		first             shot
		ints, hups, terms int // before the first KILL
		kill              time.Duration
	}{
		"closes":          {"close", func(e *Ending) { e.Watch(nobody) }, shot{0, []syscall.Signal{syscall.SIGINT, syscall.SIGCONT}}, 1, 0, 0, 3 * s},
		"never seen":      {"close", func(e *Ending) { e.Watch(Absence{true, start, true}) }, shot{60 * s, []syscall.Signal{syscall.SIGINT, syscall.SIGCONT}}, 1, 0, 0, 63 * s},
		"after a while":   {"30s", func(e *Ending) { e.Watch(nobody) }, shot{30 * s, []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}}, 0, 30, 15, 33 * s},
		"never seen, too": {"30s", func(e *Ending) { e.Watch(Absence{true, start, true}) }, shot{30 * s, []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}}, 0, 30, 15, 33 * s},
		"closed":          {"", func(e *Ending) { e.HangUp(start) }, shot{0, []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}}, 0, 30, 0, 3 * s},
		"killed":          {"", func(e *Ending) { e.Kill(start) }, shot{0, []syscall.Signal{syscall.SIGKILL}}, 0, 0, 0, 0},
		"closed while it closes": {"close", func(e *Ending) {
			e.Watch(nobody)
			e.Signals(start)
			e.HangUp(start.Add(2 * s))
		}, shot{2 * s, []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}}, 0, 10, 0, 3 * s},
		"closed at an odd moment": {"close", func(e *Ending) {
			e.Watch(nobody)
			e.Signals(start)
			e.HangUp(start.Add(2950 * time.Millisecond))
			e.HangUp(start.Add(2960 * time.Millisecond))
		}, shot{2950 * time.Millisecond, []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}}, 0, 1, 0, 3 * s},
		"closed while it ends": {"30s", func(e *Ending) {
			e.Watch(nobody)
			e.Signals(start.Add(30 * s))
			e.HangUp(start.Add(31 * s))
		}, shot{30100 * time.Millisecond, []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}}, 0, 29, 15, 33 * s},
		"killed while it closes": {"close", func(e *Ending) {
			e.Watch(nobody)
			e.Signals(start)
			e.Kill(start.Add(s))
		}, shot{s, []syscall.Signal{syscall.SIGKILL}}, 0, 0, 0, s},
		"back too late": {"close", func(e *Ending) {
			e.Watch(nobody)
			e.Signals(start)
			e.Watch(Absence{})
		}, shot{3 * s, []syscall.Signal{syscall.SIGKILL}}, 0, 0, 0, 3 * s},
	} {
		e := NewEnding(tt.on)
		tt.do(&e)
		shots := run(&e, 64*s)
		if len(shots) == 0 || shots[0].at != tt.first.at || !slices.Equal(shots[0].signals, tt.first.signals) {
			t.Errorf("%s: begins %v, want %v", name, shots[:min(1, len(shots))], tt.first)
			continue
		}
		count, killed := map[syscall.Signal]int{}, time.Duration(-1)
		for _, shot := range shots {
			for _, sig := range shot.signals {
				if sig == syscall.SIGKILL && killed < 0 {
					killed = shot.at
				}
				if killed < 0 {
					count[sig]++
				}
			}
		}
		if killed != tt.kill || count[syscall.SIGINT] != tt.ints || count[syscall.SIGHUP] != tt.hups || count[syscall.SIGTERM] != tt.terms {
			t.Errorf("%s: %v, killed after %v", name, count, killed)
		}
		if n := len(shots); shots[n-1].at < tt.kill || shots[n-1].signals[0] != syscall.SIGKILL {
			t.Errorf("%s: %v at last", name, shots[n-1])
		}
	}
	for _, on := range []op.OnDetach{"", op.DetachKeep, "nonsense"} {
		e := NewEnding(on)
		e.Watch(nobody)
		if at, ok := e.Deadline(); ok || e.Signals(start.Add(1000*time.Hour)) != nil || e.Begun() {
			t.Errorf("%q: ends at %v", on, at)
		}
	}
}

// A world is the model: the same terminal, told in the simplest words. It looks at
// each tick.
type world struct {
	on      op.OnDetach
	sockets map[Stream]int
	away    int
	until   int // tick
	watched int // the last tick at which somebody did
	seen    bool
	now     int
	asked   bool // somebody wanted an end
}

const tick = 100 * time.Millisecond

func ticks(d time.Duration) int { return int(d / tick) }

// look notes whether somebody watches at this tick.
func (w *world) look() {
	somebody := w.away > 0 && w.now < w.until
	for _, n := range w.sockets {
		if n != 0 {
			somebody, w.seen = true, true
		}
	}
	if somebody {
		w.watched = w.now
	}
}

// due returns the tick at which the end begins for want of viewers, if nobody comes.
func (w *world) due() (int, bool) {
	after, ends := w.on.After()
	if w.on == op.DetachClose && !w.seen {
		after = UnseenFor
	}
	since := w.watched
	if w.away > 0 {
		since = max(since, w.until)
	}
	return since + ticks(after), ends
}

// TestModel has viewers come and go, relays die and people close the terminal at
// random. The end begins exactly when the model says, never earlier, never stops
// once begun, and 3 s later everything is killed.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			on:      rapid.SampledFrom([]op.OnDetach{op.DetachClose, op.DetachKeep, "1s", "5s", "15s", "70s"}).Draw(t, "on"),
			sockets: map[Stream]int{},
		}
		a, e := NewAudience(start), NewEnding(w.on)
		now := func() time.Time { return start.Add(time.Duration(w.now) * tick) }
		begun, ints, last := -1, 0, -1
		step := func() {
			e.Watch(a.Absence())
			due, ends := w.due()
			should := w.asked || ends && !w.watching() && w.now >= due
			signals := e.Signals(now())
			switch {
			case begun < 0 && e.Begun() != should:
				t.Fatalf("tick %d: begun %t, want %t: %+v, %+v", w.now, e.Begun(), should, w, a)
			case begun >= 0 && !e.Begun():
				t.Fatalf("tick %d: the end was taken back", w.now)
			case begun < 0 && e.Begun():
				begun = w.now
				if len(signals) == 0 {
					t.Fatalf("tick %d: it begins with nothing", w.now)
				}
			}
			if begun < 0 {
				return
			}
			late := w.now-begun >= ticks(KillAfter)
			for _, sig := range signals {
				switch {
				case sig == syscall.SIGKILL && !late && !w.asked:
					t.Fatalf("tick %d: killed early, begun at %d", w.now, begun)
				case sig == syscall.SIGKILL:
					last = w.now
				case late:
					t.Fatalf("tick %d: %v instead of KILL", w.now, sig)
				case sig == syscall.SIGHUP && w.on == op.DetachClose && !w.asked, sig == syscall.SIGINT && w.asked && begun == w.now:
					t.Fatalf("tick %d: %v with %s", w.now, sig, w.on)
				case sig == syscall.SIGINT:
					if ints++; ints > 1 || w.on != op.DetachClose {
						t.Fatalf("tick %d: INT number %d", w.now, ints)
					}
				}
			}
			if late && last != w.now {
				t.Fatalf("tick %d: not killed, begun at %d", w.now, begun)
			}
		}
		step()
		pick := func() Stream {
			return Stream(rapid.IntRange(1, max(1, int(a.last))).Draw(t, "stream"))
		}
		say := func(s Stream, n int) {
			a.Say(s, n, now())
			if was, open := w.sockets[s]; open {
				w.away = max(0, w.away-max(0, n-max(was, 0)))
				w.look()
				w.sockets[s] = n
				w.look()
			}
		}
		end := func(s Stream) {
			a.Close(s, now())
			was, open := w.sockets[s]
			if !open || was == 0 {
				delete(w.sockets, s)
				return
			}
			w.look()
			delete(w.sockets, s)
			if w.now >= w.until {
				w.away = 0
			}
			w.away, w.until = w.away+counted(was), w.now+ticks(protocol.ControlGrace)
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(*rapid.T) {
				if len(w.sockets) < 3 {
					w.sockets[a.Open()] = unsaid
				}
			},
			"say": func(t *rapid.T) {
				say(pick(), rapid.IntRange(0, 2).Draw(t, "sockets"))
			},
			"end": func(*rapid.T) { end(pick()) },
			"dies and is back": func(t *rapid.T) { // and so are some of its viewers
				w.look()
				open := slices.Sorted(maps.Keys(w.sockets))
				if len(open) == 0 {
					return
				}
				s := open[0]
				had := counted(w.sockets[s])
				end(s)
				again := a.Open()
				w.sockets[again] = unsaid
				w.look()
				say(again, rapid.IntRange(0, had).Draw(t, "back"))
				say(again, 0)
			},
			"wait": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 1, 9, 40, 150}).Draw(t, "ticks") {
					w.look()
					step()
					w.now++
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					e.HangUp(now())
					w.asked = true
				}
			},
			"": func(*rapid.T) { w.look(); step() },
		})
	})
}

// watching reports whether some stream has sockets now.
func (w *world) watching() bool {
	for _, n := range w.sockets {
		if n != 0 {
			return true
		}
	}
	return false
}
