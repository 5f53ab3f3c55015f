package life

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// TestStep: whatever happens in whatever order, each run has one complete, an
// aborted one not before its process is gone, and nothing is asked of a process
// twice.
// It is about weakness 25 in deploy/e2e/README.md.
func TestStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Life
		begun, completed, ends, interrupts := 0, 0, 0, 0
		aborted, gone := false, false
		for _, kind := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 60).Draw(t, "events") {
			e := []Event{Begin{}, Done{3}, Fail{}, Abort{}, Impatience{}, Gone{}}[kind]
			before := l.State()
			next, effects, err := Step(l, e)
			switch e.(type) {
			case Begin:
				if (err == nil) != (before == protocol.RunIdle) {
					t.Fatalf("%T while %s: %v", e, before, err)
				}
				if err == nil {
					begun++
					ends, interrupts, aborted = 0, 0, false
				}
			case Abort:
				if (err == nil) == (before == protocol.RunIdle) {
					t.Fatalf("%T while %s: %v", e, before, err)
				}
				aborted = aborted || err == nil
			}
			if err != nil && next != l {
				t.Fatalf("refused, and changed")
			}
			_, gone = e.(Gone)
			for _, effect := range effects {
				switch effect := effect.(type) {
				case Complete:
					completed++
					if effect.Aborted != aborted {
						t.Fatalf("aborted: %t, says %t", aborted, effect.Aborted)
					}
					if aborted && !gone {
						t.Fatalf("aborted, and complete before the process is gone")
					}
					if next.State() != protocol.RunIdle {
						t.Fatalf("complete and %s", next.State())
					}
				case End:
					ends++
				case Interrupt:
					interrupts++
				}
			}
			if l = next; ends > 1 || interrupts > 1 {
				t.Fatalf("ended %d times, interrupted %d times", ends, interrupts)
			}
			if open := begun - completed; open != 0 && open != 1 || (open == 0) != (l.State() == protocol.RunIdle) {
				t.Fatalf("%d begun, %d completed, %s", begun, completed, l.State())
			}
		}
		if next, _, _ := Step(l, Gone{}); next.State() != protocol.RunIdle {
			t.Fatalf("its process is gone, and it is %s", next.State())
		}
	})
}

// TestOutcomes: the code that a complete has.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		events []Event
		want   Complete
	}{
		"done":                  {[]Event{Done{0}}, Complete{}},
		"done with a code":      {[]Event{Done{7}}, Complete{ExitCode: 7}},
		"died":                  {[]Event{Gone{}}, Complete{ExitCode: Unknown}},
		"failed":                {[]Event{Fail{}, Done{0}, Gone{}}, Complete{ExitCode: Unknown}},
		"aborted":               {[]Event{Abort{}, Done{1}, Gone{}}, Complete{Aborted: true}},
		"aborted twice":         {[]Event{Abort{}, Abort{}, Gone{}}, Complete{Aborted: true}},
		"aborted, won't end":    {[]Event{Abort{}, Impatience{}, Gone{Left: true}}, Complete{ExitCode: 1, Aborted: true}},
		"failed, then aborted":  {[]Event{Fail{}, Abort{}, Gone{}}, Complete{Aborted: true}},
		"done before the abort": {[]Event{Done{0}, Abort{}, Gone{}}, Complete{}},
	} {
		l, _, _ := Step(Life{}, Begin{})
		var got []Complete
		for _, e := range c.events {
			var effects []Effect
			l, effects, _ = Step(l, e)
			for _, effect := range effects {
				if complete, ok := effect.(Complete); ok {
					got = append(got, complete)
				}
			}
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
