package chathub

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestRace: whoever subscribes while events pour in gets each one after the mark
// once, in order, and the ack, also who subscribes again: an event that was on its
// way doesn't come twice. Another client that stays gets each one once.
// It is about weaknesses 3 and 26 in deploy/e2e/README.md.
func TestRace(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 3)
	w.agent.becomes(l, protocol.RunRunning, "cmd_1")
	pour, poured := make(chan int), make(chan struct{})
	go func() { // the test waits for it
		defer close(poured)
		for n := range pour {
			for range n {
				w.agent.prints(l)
			}
		}
	}()
	defer func() {
		close(pour)
		<-poured
	}()
	stays := w.join(bob)
	stays.follow(convA, 3)
	stays.acked(convA, 3, false)
	x, mark, total := w.join(alice), uint64(3), uint64(3)
	for round := range *rounds {
		if round%16 == 15 { // as a new client, whose mark the ring may lack
			x.leave()
			x = w.join(alice)
			mark -= uint64(round % 3)
		}
		n := 1 + round%5
		pour <- n
		from := total + 1
		total += uint64(n)
		x.follow(convA, int(mark))
		next, acked := mark+1, false
		for !acked || next <= total {
			m := x.next()
			switch {
			case m.Kind == "chat_subscribed" && !acked && !m.Gap && m.LastSeq >= from-1:
				acked = true
			case m.Seq == next:
				next++
			default:
				t.Fatalf("round %d: %s, want %d, acked %v", round, m, next, acked)
			}
		}
		mark = total
		stays.reads(convA, from, total)
	}
}
