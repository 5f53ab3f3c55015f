package arbiter

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// mostAcks bounds the acks that wait for output: one for each client that types
// within so short a time.
const mostAcks = 32

// acks are those that wait for the echo of what they acknowledge, to go to the relay
// together with it. A key and its echo take one packet back that way, and neither
// relay nor viewer is at work on an ack while the program that echoes wants a
// processor. Arbiter.mu guards them.
type acks struct {
	waiting []protocol.InputAck // at most mostAcks, one for each client
	shown   bool                // output was taken since the first of them came
	overdue bool                // no output came in time
	timer   *time.Timer         // nil before the first one
}

// ack queues the ack of all input of client up to seq, in place of one that waits.
// The caller holds Arbiter.mu.
func (a *Stream) ack(client string, seq uint64) {
	m := protocol.InputAck{Seq: seq, Client: client}
	q, delay := &a.acks, a.arbiter.o.AckDelay
	for i := range q.waiting {
		if q.waiting[i].Client == client {
			q.waiting[i] = m
			return
		}
	}
	switch {
	case a.err != nil:
		return
	case len(q.waiting) == mostAcks:
		a.post(m)
		return
	}
	q.waiting = append(q.waiting, m)
	if len(q.waiting) > 1 {
		return // the timer runs
	}
	q.shown, q.overdue = false, delay <= 0
	switch {
	case q.overdue:
		a.notify()
	case q.timer == nil:
		q.timer = time.AfterFunc(delay, a.ackLate)
	default:
		q.timer.Reset(delay)
	}
}

// ackLate has what waits be taken without output.
func (a *Stream) ackLate() {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	if len(a.acks.waiting) > 0 {
		a.acks.overdue = true
		a.notify()
	}
}

// behind returns the ack that follows the output before it, nil if there is none. The
// caller holds Arbiter.mu.
func (q *acks) behind() protocol.Message {
	if !q.shown || len(q.waiting) == 0 {
		return nil
	}
	return q.pop()
}

// pop returns the first ack. The caller holds Arbiter.mu.
func (q *acks) pop() protocol.Message {
	m := q.waiting[0]
	q.waiting = append(q.waiting[:0], q.waiting[1:]...)
	return m
}

// stop ends the timer. The caller holds Arbiter.mu.
func (q *acks) stop() {
	q.waiting = nil
	if q.timer != nil {
		q.timer.Stop()
	}
}
