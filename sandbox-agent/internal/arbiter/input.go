package arbiter

import (
	"bytes"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
)

const (
	// MaxQueuedItems bounds the queue where its bytes don't: a key held down
	// before a program that doesn't read.
	MaxQueuedItems = 8 << 10
	// MaxAnswerBytes bounds the answers to terminal queries that wait: room for
	// those to all 256 colours at once, several times. A program that asks more
	// without reading gets no more.
	MaxAnswerBytes = 64 << 10
	// maxClients bounds the clients whose sequence is remembered.
	maxClients = 1 << 10
)

// A source is where input comes from, and who is told what became of it. Its
// methods are called with Arbiter.mu held.
type source interface {
	ack(client string, seq uint64)
	refuseInput(client string, seq uint64, reason protocol.RefusalReason)
}

// A queuedInput is input that waits for room in the PTY.
type queuedInput struct {
	from   source // gets the ack or refusal
	term   uint64
	client string // "": it isn't counted
	seq    uint64
	rest   []byte // not written yet
	begun  bool   // some of it is
}

// inputQueue is what waits to be written to the PTY. The arbiter's mu
// guards it.
type inputQueue struct {
	items []queuedInput // at most MaxQueuedItems
	bytes int           // in items, at most protocol.MaxInputQueued

	// Input is taken in once and written once, in this order.
	accepted *lease.Window
	written  *lease.Window

	// What the terminal's own program was given: when last, by the clock of
	// files, and whether that was nothing, or ended with Enter.
	last    time.Time
	entered bool
}

func newInputQueue() inputQueue {
	return inputQueue{accepted: lease.NewWindow(maxClients), written: lease.NewWindow(maxClients), entered: true}
}

// answer queues the answer to a query of p's. The caller holds Arbiter.mu.
func (p *Program) answer(answer []byte) {
	if len(p.answers)+len(answer) <= MaxAnswerBytes {
		p.answers = append(p.answers, answer...)
	}
}

// pop removes the first item. It keeps the space of an only one, which is the
// case of each keystroke.
func (q *inputQueue) pop() queuedInput {
	item := q.items[0]
	q.items[0] = queuedInput{}
	if len(q.items) == 1 {
		q.items = q.items[:0]
	} else {
		q.items = q.items[1:]
	}
	return item
}

// find returns the queued input (client, seq), or nil.
func (q *inputQueue) find(client string, seq uint64) *queuedInput {
	for i := range q.items {
		if q.items[i].client == client && q.items[i].seq == seq {
			return &q.items[i]
		}
	}
	return nil
}

// Input writes in to the PTY, or queues it while the PTY has no room. It never
// waits. An INPUT_ACK follows once all of it is written, or an INPUT_REFUSED:
// the reasons are those of the lease, busy when the queue is full, and ended.
// Input that was taken in before, from this stream or another, is not
// written again, only acknowledged. In.Bytes may be reused on return.
func (a *Stream) Input(in protocol.Input) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.err != nil {
		return
	}
	if last, ok := b.input.accepted.Last(in.Client); ok && in.Seq <= last {
		a.repeat(in)
		return
	}
	if reason, ok := b.mayType(in.Term); !ok {
		a.refuseInput(in.Client, in.Seq, reason)
		return
	}
	q := &b.input
	if len(q.items) == MaxQueuedItems || q.bytes+len(in.Bytes) > protocol.MaxInputQueued {
		a.refuseInput(in.Client, in.Seq, protocol.RefusedBusy)
		return
	}
	q.accepted.Accept(in.Client, in.Seq)
	q.items = append(q.items, queuedInput{from: a, term: in.Term, client: in.Client, seq: in.Seq, rest: in.Bytes})
	q.bytes += len(in.Bytes)
	if b.control.lease.Typed(time.Now()) {
		b.leaseChanged(nil, 0)
	}
	b.pump()
	if n := len(q.items); n > 0 { // in is not written, and still the last
		q.items[n-1].rest = bytes.Clone(q.items[n-1].rest)
	}
}

// repeat answers input that was taken in before: with an ack when it is
// written; when it still waits its ack goes to a, as a relay that lost its
// tunnel expects; else it was refused. The caller holds Arbiter.mu.
func (a *Stream) repeat(in protocol.Input) {
	b := a.arbiter
	if last, ok := b.input.written.Last(in.Client); ok && in.Seq <= last {
		a.ack(in.Client, last)
		return
	}
	if item := b.input.find(in.Client, in.Seq); item != nil {
		item.from = a
		return
	}
	reason, ok := b.mayType(in.Term)
	if ok {
		reason = protocol.RefusedStaleTerm
	}
	a.refuseInput(in.Client, in.Seq, reason)
}

// mayType says why input typed under term may not be written now. The caller
// holds mu.
func (b *Arbiter) mayType(term uint64) (protocol.RefusalReason, bool) {
	if !b.ended.IsZero() {
		return protocol.RefusedEnded, false
	}
	if b.stage.locked() {
		return protocol.RefusedAgentRunning, false
	}
	return b.control.lease.Check(term)
}

// pump writes what the PTY in front has room for, and leaves the rest to flush.
// The caller holds mu.
func (b *Arbiter) pump() {
	p := b.stage.front
	if p.flushing || !b.ended.IsZero() || b.writeInput() {
		return
	}
	p.flushing = true
	b.writers.Go(func() { b.flush(p) }) // Wait waits for it
}

// flush writes the queue as the PTY of p gets room, until it is empty or p is
// not in front.
func (b *Arbiter) flush(p *Program) {
	err := p.Device.WhenWritable(func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		done := p != b.stage.front || b.writeInput()
		p.flushing = !done
		return done
	})
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		p.flushing = false
		if p == b.stage.front {
			b.refuseAll()
		}
	}
}

// writeInput writes as much of the queue as there is room for in front and
// reports whether that was all. An answer to a query goes between two inputs,
// never into one. The caller holds mu, so no other term can begin meanwhile.
func (b *Arbiter) writeInput() (done bool) {
	q, front := &b.input, b.stage.front
	for len(front.answers)+len(q.items) > 0 {
		p := front.answers
		answering := len(p) > 0 && (len(q.items) == 0 || !q.items[0].begun)
		if !answering {
			p = q.items[0].rest
		}
		now := account.FileClock() // before: the shell may be at its next prompt as soon as it has this
		n, err := front.Device.Offer(p)
		if n > 0 && !answering && front == b.own {
			q.last, q.entered = now, p[n-1] == '\r' || p[n-1] == '\n'
		}
		switch {
		case err != nil: // the PTY is closed, its end will be recorded
			b.refuseAll()
			return true
		case answering:
			front.answers = append(front.answers[:0], p[n:]...)
		default:
			q.items[0].rest, q.items[0].begun = p[n:], q.items[0].begun || n > 0
			q.bytes -= n
			b.o.Counts.InputBytes.Add(uint64(n))
		}
		if n < len(p) {
			return false
		}
		if !answering {
			item := q.pop()
			if item.client != "" {
				q.written.Accept(item.client, item.seq)
			}
			item.from.ack(item.client, item.seq)
		}
	}
	return true
}

// refuseStale refuses what was queued under a term that is over, a begun item
// too: the rest of it is not written. The caller holds mu.
func (b *Arbiter) refuseStale() {
	b.input.refuseWhere(func(item queuedInput) (protocol.RefusalReason, bool) {
		reason, ok := b.mayType(item.term)
		return reason, !ok
	})
}

// refuseAll refuses everything queued for the program in front, which takes
// nothing any more. What was meant for a coding agent is not for the program
// behind. The caller holds mu.
func (b *Arbiter) refuseAll() {
	reason := protocol.RefusedEnded
	if b.stage.front != b.own {
		reason = protocol.RefusedStaleTerm
	}
	b.stage.front.answers = nil
	b.input.refuseWhere(func(queuedInput) (protocol.RefusalReason, bool) { return reason, true })
}

// refuseWhere refuses what is queued and for which refused says why. The caller
// holds mu.
func (q *inputQueue) refuseWhere(refused func(queuedInput) (protocol.RefusalReason, bool)) {
	var kept []queuedInput
	for _, item := range q.items {
		reason, yes := refused(item)
		if !yes {
			kept = append(kept, item)
			continue
		}
		q.bytes -= len(item.rest)
		item.from.refuseInput(item.client, item.seq, reason)
	}
	q.items = kept
}
