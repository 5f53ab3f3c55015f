package skew

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// asking is a source that answers by a function.
type asking func(context.Context) (string, error)

// Ask implements [Source].
func (a asking) Ask(ctx context.Context, _, _ string) (string, error) { return a(ctx) }

// link answers what the source's clock says, over a link that takes so long
// there and back. The clock is ahead by offset.
func link(offset time.Duration, there, back func(n int) time.Duration) Source {
	n := 0
	return asking(func(context.Context) (string, error) {
		n++
		time.Sleep(there(n))
		says := time.Now().Add(offset).UnixMicro()
		time.Sleep(back(n))
		return strconv.FormatInt(says, 10), nil
	})
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// However the delay of a link is spread over its two ways, the source's clock is
// within the bound of what it is taken for: at its very end when all of the delay
// is on one way.
func TestErrorIsBounded(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	for _, tt := range []struct {
		name          string
		there, back   func(int) time.Duration
		wrong, within time.Duration
	}{
		{"both ways alike", always(100 * ms), always(100 * ms), 0, 100 * ms},
		{"all on the way back", always(0), always(200 * ms), -100 * ms, 100 * ms},
		{"all on the way there", always(200 * ms), always(0), 100 * ms, 100 * ms},
		{"most on the way back", always(10 * ms), always(40 * ms), -15 * ms, 25 * ms},
		{"no delay", always(0), always(0), 0, 0},
		{"one of many is quick", always(ms), func(n int) time.Duration {
			if n == 20 {
				return 3 * ms
			}
			return 60 * ms
		}, -ms, 2 * ms},
	} {
		for _, offset := range []time.Duration{0, 3 * time.Second, -time.Hour - 7*us} {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s, err := Measure(t.Context(), link(offset, tt.there, tt.back))
				if err != nil {
					t.Fatal(err)
				}
				if wrong := s.Ahead - offset; (wrong-tt.wrong).Abs() > us || wrong.Abs() > s.Error {
					t.Errorf("%s: %v is taken for %v ± %v, want wrong by %v", tt.name, offset, s.Ahead, s.Error, tt.wrong)
				}
				if (s.Error - tt.within).Abs() > us {
					t.Errorf("%s: ± %v, want ± %v", tt.name, s.Error, tt.within)
				}
				if took := time.Since(began); took > askTime+200*ms {
					t.Errorf("%s: it took %v", tt.name, took)
				}
			})
		}
	}
}

// What is no time is refused, and so is a source that doesn't answer.
func TestNoTime(t *testing.T) {
	gone := errors.New("gone")
	for _, ask := range []asking{
		func(context.Context) (string, error) { return "noon", nil },
		func(context.Context) (string, error) { return "", nil },
		func(context.Context) (string, error) { return "", gone },
	} {
		if s, err := Measure(t.Context(), ask); err == nil {
			t.Errorf("the clock is ahead by %v ± %v", s.Ahead, s.Error)
		}
	}
}

// A clock that drifts away while a run goes on is as wrong as it is at its end,
// whichever way.
func TestDriftCounts(t *testing.T) {
	const ms = time.Millisecond
	for _, drift := range []time.Duration{70 * ms, -70 * ms} {
		synctest.Test(t, func(t *testing.T) {
			out := measure.NewCollection(nil)
			within := func() time.Duration {
				return time.Duration(out.Result(measure.Info{}).ClockError * float64(time.Second)).Round(ms)
			}
			c, err := Read(t.Context(), link(time.Hour, always(5*ms), always(5*ms)), out)
			if err != nil || within() != 5*ms || c.Ahead().Round(ms) != time.Hour || c.Error() != 5010*time.Microsecond {
				t.Fatalf("before: %v ± %v, told as %v; %v", c.Ahead(), c.Error(), within(), err)
			}
			c.source = link(time.Hour+drift, always(5*ms), always(5*ms))
			if err := c.Settle(t.Context()); err != nil || within() != 75*ms {
				t.Errorf("after a drift of %v: ± %v, %v, want 75ms", drift, within(), err)
			}
		})
	}
}

// Our own clock is right.
func TestOurs(t *testing.T) {
	var c *Clock
	if err := c.Settle(t.Context()); err != nil || c.Ahead() != 0 || c.Error() != 0 {
		t.Errorf("ours is %v ± %v ahead of itself: %v", c.Ahead(), c.Error(), err)
	}
}
