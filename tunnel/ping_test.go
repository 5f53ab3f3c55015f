package tunnel

import (
	"testing"
	"time"
)

// TestStandstillIsNotSilence: a process that was stopped for longer than it
// would wait for its peer reads first what the peer sent meanwhile. One that is
// starved all the time still notices in the end that nobody answers.
func TestStandstillIsNotSilence(t *testing.T) {
	start := time.Now()
	begin := func() (p pinger, now time.Time) {
		p = newPinger()
		p.begin(start)
		id, wait, dead := p.tick(start, 0)
		if id == 0 || dead {
			t.Fatalf("the first look: ping %d, dead %v", id, dead)
		}
		return p, start.Add(wait)
	}

	t.Run("stopped once", func(t *testing.T) {
		p, now := begin()
		now = now.Add(time.Hour)
		_, wait, dead := p.tick(now, 0)
		if dead {
			t.Fatal("the peer is gone since this process stood still")
		}
		for !dead {
			now = now.Add(wait)
			_, wait, dead = p.tick(now, 0)
			if silent := now.Sub(start) - time.Hour; dead != (silent >= idleSilence) {
				t.Fatalf("dead is %v %v after the standstill", dead, silent)
			}
		}
	})

	t.Run("on time", func(t *testing.T) {
		p, now := begin()
		for dead := false; !dead; {
			var wait time.Duration
			_, wait, dead = p.tick(now, 0)
			if silent := now.Sub(start); dead != (silent >= idleSilence) {
				t.Fatalf("dead is %v after %v", dead, silent)
			}
			now = now.Add(wait)
		}
	})

	t.Run("always late", func(t *testing.T) {
		const late = time.Second
		p, now := begin()
		var excused time.Duration
		for dead := false; !dead; {
			var wait time.Duration
			_, wait, dead = p.tick(now, 0)
			if silent := now.Sub(start) - excused; dead != (silent >= idleSilence) {
				t.Fatalf("dead is %v after %v, and %v of standstill", dead, silent, excused)
			}
			now, excused = now.Add(wait+late), excused+late
		}
	})
}
