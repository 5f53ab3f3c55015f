package client

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// Whatever sockets come and go, and whatever is refused for the moment: each
// input is given to every socket once and in order, until it is acknowledged or
// refused for good, which is told once.
func TestOutboxKeepsWhatIsOnItsWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o outbox
		var added, written, given []uint64 // given: to the present socket
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				if o.room(1) {
					seq := uint64(len(added) + 1)
					if got := o.add("k", 1, func(time.Time) { written = append(written, seq) }); got != seq {
						t.Fatalf("sequence %d, want %d", got, seq)
					}
					added = append(added, seq)
				}
			case 2:
				if in, ok := o.unsent(); ok {
					if len(given) > 0 && in.Seq <= given[len(given)-1] {
						t.Fatalf("gives %d behind %v", in.Seq, given)
					}
					given, o.sent = append(given, in.Seq), o.sent+1
				}
			case 3:
				if len(given) > 0 {
					o.acknowledged(rapid.SampledFrom(given).Draw(t, "written"), time.Time{})
				}
			case 4:
				if len(given) > 0 {
					seq := rapid.SampledFrom(given).Draw(t, "refused")
					reason := rapid.SampledFrom([]protocol.RefusalReason{protocol.RefusedBusy, protocol.RefusedWaiting, protocol.RefusedStaleTerm}).Draw(t, "reason")
					underway := slices.ContainsFunc(o.queue, func(k typed) bool { return k.in.Seq == seq })
					if !underway {
						break
					}
					o.refused(protocol.InputDropped{Seq: seq, Reason: reason})
					if reason != protocol.RefusedStaleTerm {
						if _, ok := o.unsent(); ok {
							t.Fatal("sends again at once what there was no room for")
						}
						given = given[:slices.Index(given, seq)]
					}
				}
				o.held = false
			case 5:
				o.again()
				given = nil
			}
			bytes := 0
			for _, k := range o.queue {
				bytes += len(k.in.Bytes)
			}
			if bytes != o.bytes || o.sent > len(o.queue) {
				t.Fatalf("counts %d bytes of %d, %d sent of %d", o.bytes, bytes, o.sent, len(o.queue))
			}
			if len(o.queue)+len(written)+len(o.dropped) != len(added) {
				t.Fatalf("%d were typed: %d are on their way, %d written, %d refused", len(added), len(o.queue), len(written), len(o.dropped))
			}
			if !slices.IsSorted(written) {
				t.Fatalf("written in the order %v", written)
			}
		}
	})
}

func TestOutboxIsBounded(t *testing.T) {
	var o outbox
	for o.room(1) {
		o.add("k", 1, nil)
	}
	if len(o.queue) != mostTypedKeys {
		t.Errorf("%d messages are on their way", len(o.queue))
	}
	o = outbox{}
	for o.room(1000) {
		o.add(string(make([]byte, 1000)), 1, nil)
	}
	if o.bytes > mostTyped || o.bytes < mostTyped-1000 {
		t.Errorf("%d bytes are on their way", o.bytes)
	}
}

func TestRelaysInTurn(t *testing.T) {
	now := time.Unix(1000, 0)
	r := relays{known: &UserOptions{Relays: []string{"a", "b", "c"}}, at: 1}
	steps := []struct {
		do    func()
		named string
		want  string
	}{
		{func() {}, "", "b"},
		{func() {}, "", "b"},
		{r.advance, "", "c"},
		{r.advance, "", "a"},
		{r.advance, "c", "c"}, // a relay names it
		{func() {}, "elsewhere", "c"},
		{func() { r.shun(now); r.advance() }, "", "a"},
		{func() {}, "c", "a"}, // which was silent
		{func() { r.advance(); r.advance() }, "", "a"},
		{func() { now = now.Add(shunned + 1) }, "c", "c"},
	}
	for i, step := range steps {
		step.do()
		if got := r.choose(step.named, now); got != step.want {
			t.Fatalf("step %d: goes to %s, want %s", i, got, step.want)
		}
	}
	for range 3 {
		r.shun(now)
		r.advance()
	}
	if got := r.choose("", now); got == "" {
		t.Error("nowhere to go when all were silent")
	}
}

// Who knows one relay stays where it was sent.
func TestRelaysBeyondTheList(t *testing.T) {
	now := time.Unix(1000, 0)
	r := relays{known: &UserOptions{Relays: []string{"a"}, Anywhere: true}}
	for i, step := range []struct{ named, want string }{{"", "a"}, {"b", "b"}, {"", "b"}, {"a", "a"}, {"", "a"}} {
		if got := r.choose(step.named, now); got != step.want {
			t.Fatalf("step %d: goes to %s, want %s", i, got, step.want)
		}
		r.advance()
	}
	r = relays{known: &UserOptions{Relays: []string{"a"}}}
	if got := r.choose("b", now); got != "a" {
		t.Errorf("follows to %s, which it doesn't know", got)
	}
}

func TestPulse(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	var p pulse
	for _, step := range []struct {
		heard, now int
		want       sign
	}{
		{0, 0, signNone},
		{0, 1499, signNone},
		{0, 1500, signAsk},
		{0, 1600, signNone},
		{1700, 3100, signNone}, // it answered
		{1700, 3200, signAsk},
		{1700, 4600, signNone},
		{1700, 4699, signNone},
		{1700, 4700, signDead},
		{1700, 5000, signNone}, // told once
	} {
		if got := p.check(at(step.heard), at(step.now), Silence); got != step.want {
			t.Errorf("heard at %d, now %d: %v, want %v", step.heard, step.now, got, step.want)
		}
	}
	// A viewer that stood still itself asks first.
	p = pulse{}
	if got := p.check(at(0), at(60_000), Silence); got != signAsk {
		t.Errorf("after a minute of standing still: %v", got)
	}
	if got := p.check(at(0), at(60_100), Silence); got != signNone {
		t.Errorf("a moment after it asked: %v", got)
	}
}

func TestAcks(t *testing.T) {
	heard := time.Unix(1000, 0)
	a := acks{said: 100, heard: heard}
	if a.due(100) || a.overdue(100, heard.Add(time.Hour)) {
		t.Error("acknowledges nothing")
	}
	if a.due(101) || a.overdue(101, heard.Add(quiet-1)) {
		t.Error("acknowledges a byte at once")
	}
	if !a.overdue(101, heard.Add(quiet)) || !a.due(100+protocol.AckBytes/2) {
		t.Error("doesn't acknowledge in time")
	}
	if got := string(a.appendAck(nil, 101)); got != `{"type":"ack","offset":101}` {
		t.Error(got)
	}
	a.keyframe = true
	if !a.due(101) {
		t.Error("a keyframe isn't acknowledged at once")
	}
}

func TestErrorsOfSockets(t *testing.T) {
	for code, want := range map[int]bool{4004: true, 4403: true, 4404: true, 4409: true, 4401: false, 1012: false, noCode: false} {
		if got := (&CloseError{Code: code}).final(); got != want {
			t.Errorf("%d is final: %v", code, got)
		}
	}
	if _, ok := errors.AsType[*ProtocolError](errOrder); !ok {
		t.Errorf("%v is no violation of the protocol", errOrder)
	}
}
