package feed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func TestWhatIsUnacknowledgedIsBounded(t *testing.T) {
	f := newFeed()
	r := attach(t, f)
	says(t, f, 900_000)
	n, _ := takes(t, r)
	if n > protocol.MaxOutputUnacked || n < protocol.MaxOutputUnacked-2*protocol.MaxDataBytes {
		t.Errorf("%d bytes are sent", n)
	}
	for acked := uint64(0); acked < 900_000; {
		acked = min(acked+protocol.AckBytes, uint64(n))
		out := r.Acked(acked)
		if out.Lost != "" {
			t.Fatalf("moved ahead: %s", out.Lost)
		}
		more, _ := takes(t, r)
		n += more
		if n-int(acked) > protocol.MaxOutputUnacked {
			t.Fatalf("%d bytes are unacknowledged", n-int(acked))
		}
	}
	if n != 900_000 || r.blocked.Load() {
		t.Errorf("%d bytes came, blocked %v", n, r.blocked.Load())
	}
}

// Acks of what was never sent, or sent before, change nothing.
func TestNonsenseAcks(t *testing.T) {
	f := newFeed()
	r := attach(t, f)
	says(t, f, 600_000)
	n, _ := takes(t, r)
	for _, offset := range []uint64{uint64(n) + 1, 1 << 62, 0} {
		if out := r.Acked(offset); out != (AckOutcome{}) {
			t.Errorf("an ack of %d: %+v", offset, out)
		}
	}
	if more, _ := takes(t, r); more != 0 {
		t.Errorf("%d bytes more are sent", more)
	}
}

// One that stands at its limit is moved ahead by the next ack, and not before.
func TestOneWhoStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		r := attach(t, f)
		says(t, f, 300_000)
		n, _ := takes(t, r)
		time.Sleep(protocol.SlowAfter - time.Millisecond)
		if out := r.Acked(20_000); out.Lost != "" || !out.Wake {
			t.Fatalf("%+v in time", out)
		}
		more, _ := takes(t, r)
		time.Sleep(protocol.SlowAfter)
		if more, out := takes(t, r); more != 0 || out.Lost != "" {
			t.Fatalf("%d bytes, %+v without an ack", more, out)
		}
		if out := r.Acked(40_000); out.Lost != ResyncUnacked {
			t.Fatalf("%+v, though it stood for %v", out, 2*protocol.SlowAfter)
		}
		if out := r.Acked(50_000); out.Lost != "" {
			t.Fatalf("moved ahead twice: %+v", out)
		}

		// It gets a keyframe, whose bytes are on its account with all that it
		// had not acknowledged, until it has shown it.
		kf := screenAt(t, f, 300_000, 10_000)
		r.SkipBehind(kf)
		if got, want := r.pos.unacked(), 10_000+n+more-50_000; got != want {
			t.Errorf("%d bytes are unacknowledged, want %d", got, want)
		}
		r.Acked(300_000) // before the keyframe was sent: of another time
		if r.pos.flow.debt == 0 {
			t.Error("paid before it was sent")
		}
		takes(t, r)
		r.Acked(300_000)
		if got := r.pos.unacked(); got != 0 {
			t.Errorf("%d bytes are unacknowledged", got)
		}
	})
}

// TestOneWhoseSocketIsFull: a writer that waits at the socket is as slow as one
// that stands at its limit, and what is taken from it meanwhile says so.
func TestOneWhoseSocketIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		r := attach(t, f)
		says(t, f, 100_000)
		takes(t, r)
		says(t, f, 200_000) // which the writer has no chance to take
		for at := uint64(10_000); at < 30_000; at += 10_000 {
			if out := r.Acked(at); out.Lost != "" {
				t.Fatalf("%+v in time", out)
			}
			time.Sleep(protocol.SlowAfter - time.Millisecond)
		}
		if out := r.Acked(30_000); out.Lost != ResyncUnacked {
			t.Fatalf("%+v after %v", out, 2*protocol.SlowAfter)
		}
	})
}

// TestNothingBehindAKeyframe: who was too slow gets no more until the keyframe
// is shown, and then the next one if that is better than what has come since.
func TestNothingBehindAKeyframe(t *testing.T) {
	for name, tt := range map[string]struct {
		since uint64 // bytes behind the keyframe when it is shown
		again bool
	}{
		"little": {protocol.AckBytes, false},
		"much":   {protocol.AckBytes + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed()
			r := attach(t, f)
			says(t, f, 300_000)
			tooSlow(r)
			kf := screenAt(t, f, 300_000, 10)
			r.SkipBehind(kf)
			says(t, f, 300_000+tt.since)
			takes(t, r)
			if at := r.pos.sent(); at != 300_000 {
				t.Fatalf("it was sent what is behind the keyframe, up to %d", at)
			}
			out := r.Acked(300_000)
			if again := out.Lost == ResyncUnacked; again != tt.again || out.Wake == tt.again {
				t.Errorf("%+v, %d bytes behind", out, tt.since)
			}
			if n, _ := takes(t, r); !tt.again && n != int(tt.since) {
				t.Errorf("%d bytes follow, want %d", n, tt.since)
			}
		})
	}
}

// One that acknowledges too little at a time is as slow as one that stands; one
// that moves is not.
func TestHowSlowIsSlow(t *testing.T) {
	for name, c := range map[string]struct {
		rate int // bytes a second
		want string
	}{
		"64 kbit/s": {8_000, ResyncUnacked},
		"1 Mbit/s":  {125_000, ResyncUnacked},
		"4 Mbit/s":  {500_000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFeed()
				r := attach(t, f)
				head, acked := uint64(0), uint64(0)
				for range 100 {
					head += uint64(c.rate)/10 + 10_000 // ever a little more than it takes
					says(t, f, head)
					takes(t, r)
					time.Sleep(100 * time.Millisecond)
					acked = min(acked+uint64(c.rate)/10, r.pos.sent())
					if out := r.Acked(acked); out.Lost != "" {
						if out.Lost != c.want && out.Lost != ResyncRing {
							t.Errorf("moved ahead: %s", out.Lost)
						}
						if c.want == "" && out.Lost == ResyncUnacked {
							t.Error("one that moves is moved ahead")
						}
						return
					}
				}
				if c.want != "" {
					t.Error("never moved ahead")
				}
			})
		})
	}
}

// Who fell out of the ring is moved by its next ack; at once when it owes none.
func TestOneWhoFallsOut(t *testing.T) {
	f := newFeed()
	r := attach(t, f)
	says(t, f, 100_000)
	n, _ := takes(t, r)
	says(t, f, 100_000+2*protocol.RingBytes)
	if _, out := takes(t, r); out.Lost != "" {
		t.Errorf("moved ahead without an ack")
	}
	if out := r.Acked(uint64(n) / 2); out.Lost != ResyncRing {
		t.Errorf("%+v", out)
	}

	idle := attach(t, f) // begins at a line, near the head
	n, _ = takes(t, idle)
	idle.Acked(idle.pos.sent())
	n2, _ := takes(t, idle)
	for idle.pos.sent() < f.Head().Offset {
		idle.Acked(idle.pos.sent())
		more, _ := takes(t, idle)
		n2 += more
	}
	idle.Acked(idle.pos.sent())
	says(t, f, 100_000+4*protocol.RingBytes)
	if _, out := takes(t, idle); out.Lost != ResyncRing {
		t.Errorf("%+v, after %d and %d bytes", out, n, n2)
	}
}

// One who gets every byte is never moved ahead: it reads the agent's log.
func TestExactIsNeverSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		r := attach(t, f)
		r.exact = true
		says(t, f, 600_000)
		takes(t, r)
		time.Sleep(10 * protocol.SlowAfter)
		if out := r.Acked(1000); out.Lost != "" {
			t.Errorf("%+v", out)
		}
		at := r.pos.sent()
		says(t, f, 600_000+8*protocol.RingBytes)
		_, out := takes(t, r)
		if out.Lost != "" || !out.Fill || r.pos.source != fromLog || r.pos.sent() != at {
			t.Errorf("%+v, state %d at %d, want %d", out, r.pos.source, r.pos.sent(), at)
		}
	})
}

// TestEveryByteBehindAnOldKeyframe: a keyframe is shown late, and the ring has
// gone on. Who gets every byte misses none behind it, others get the next one.
func TestEveryByteBehindAnOldKeyframe(t *testing.T) {
	for _, exact := range []bool{false, true} {
		f := newFeed()
		r := attach(t, f)
		r.exact = exact
		says(t, f, 100_000)
		kf := screenAt(t, f, 100_000, 10_000)
		says(t, f, 100_000+2*protocol.RingBytes)
		f.mu.Lock()
		r.moveBehind(kf)
		f.mu.Unlock()
		_, out := r.Next(nil, false)
		if r.pos.offset != kf.offset || (r.pos.source == fromLog) != exact || out.Fill != exact {
			t.Errorf("exact %v: %+v, %+v", exact, r.pos, out)
		}
	}
}

// TestFound28KeyframeDebtIsNotPaidEarly: only an ack that nobody can send who has
// not shown the keyframe gives back what it took. One that was under way before,
// or is of an offset before it, doesn't, however the window came to be so.
func TestFound28KeyframeDebtIsNotPaidEarly(t *testing.T) {
	behind := func(t *testing.T, f *Feed, r *Reader) int {
		says(t, f, 100_000)
		takes(t, r)
		tooSlow(r)
		says(t, f, 300_000)
		kf := screenAt(t, f, 300_000, 10_000)
		r.SkipBehind(kf)
		return r.pos.flow.debt
	}
	for name, c := range map[string]struct {
		before func(r *Reader)
		ack    uint64
		paid   bool
	}{
		"the keyframe isn't sent": {func(*Reader) {}, 300_000, false},
		"of what came before": {func(r *Reader) {
			takes(t, r)
			r.pos.flow.acked = 50_000
		}, 100_000, false},
		"a byte before it": {func(r *Reader) {
			takes(t, r)
			r.pos.flow.acked = 0
		}, 299_999, false},
		"older than the last": {func(r *Reader) { takes(t, r) }, 299_999, false},
		"of another log": {func(r *Reader) {
			takes(t, r)
			r.pos.generation++
		}, 300_000, false},
		"of the keyframe": {func(r *Reader) { takes(t, r) }, 300_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed()
			r := attach(t, f)
			debt := behind(t, f, r)
			if debt < 10_000 {
				t.Fatalf("a debt of %d", debt)
			}
			c.before(r)
			out := r.Acked(c.ack)
			if got := r.pos.flow.debt; (got == 0) != c.paid || got != 0 && got != debt {
				t.Errorf("%d of %d are owed after an ack of %d: %+v", got, debt, c.ack, out)
			}
			if !c.paid && out != (AckOutcome{}) {
				t.Errorf("%+v", out)
			}
		})
	}
}

// TestFound28AcksDontGoBack: an ack that was overtaken by a later one takes
// nothing back.
func TestFound28AcksDontGoBack(t *testing.T) {
	f := newFeed()
	r := attach(t, f)
	says(t, f, 200_000)
	takes(t, r)
	r.Acked(150_000)
	if out := r.Acked(100_000); out != (AckOutcome{}) || r.pos.unacked() != 50_000 {
		t.Errorf("%+v, %d bytes are unacknowledged", out, r.pos.unacked())
	}
}
