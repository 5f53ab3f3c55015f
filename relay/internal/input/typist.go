package input

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// Overhead is charged per message beside its bytes, so that a flood of tiny
// messages is bounded like one of large ones.
const Overhead = 64

// An Outbox is where a typist is told what became of its input.
type Outbox interface {
	Tell(m protocol.ServerMessage)
	// Confirm says that all input up to seq was written.
	Confirm(seq uint64)
}

// Options are what is known of a typist from the beginning.
type Options struct {
	ID      turn.SocketID
	User    protocol.UserID
	Client  string // names its input to the agent
	Counts  bool   // it numbers its input
	Follows bool   // it never gives the terminal its size
	Outbox  Outbox
}

// A Typist is a viewer as the queue knows it: what its input is called, and how
// far that has come.
type Typist struct {
	// Static after construction.
	queue *Queue
	Options
	credit *semaphore.Weighted // input under way

	// Guarded by queue.mu.
	attached bool      // what it types is judged
	gone     bool      // left
	waiting  []message // what it typed before it was attached, or behind a wish to yield
	wishes   int       // to yield control, that its reader has seen
	heard    int       // those that run knows
	decided  int       // those that are done or refused
	nextSeq  uint64
	gate     gate
	taking   taking
}

// Init makes t a typist of q. What it types waits until Attach.
func (t *Typist) Init(q *Queue, o Options) {
	*t = Typist{queue: q, Options: o, credit: semaphore.NewWeighted(protocol.MaxInputUnacked)}
}

// complain tells the viewer that what it sent could not be obeyed.
func (t *Typist) complain(err error) {
	e := protocol.AsError(err)
	t.Outbox.Tell(protocol.ErrorMessage{Name: e.Kind.Name(), Message: e.Error()})
}

// Credit is the room for the typist's own input under way.
func (t *Typist) Credit() *semaphore.Weighted { return t.credit }

// Waiting returns how many messages of the typist wait for a decision.
func (t *Typist) Waiting() int {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	return len(t.waiting)
}

// Type hands the queue what a plain viewer typed, in the pieces that the tunnel
// carries. It returns when there is room for it, so a socket whose input is
// not taken is not read; ctx ends the wait.
func (t *Typist) Type(ctx context.Context, input []byte) error {
	queue := t.queue
	for len(input) > 0 {
		piece := input[:min(len(input), protocol.MaxInputBytes)]
		input = input[len(piece):]
		cost := int64(len(piece) + Overhead)
		if err := queue.reserve(ctx, t.credit, cost); err != nil {
			return err
		}
		if err := queue.reserve(ctx, queue.room, cost); err != nil {
			return err
		}
		queue.accept(t, message{input: piece, cost: cost})
	}
	return nil
}

// TypeNumbered hands the queue what a viewer typed who numbers its input and
// names the term. What there is no room for is refused: its client knows what
// to do, and its socket is read on.
func (t *Typist) TypeNumbered(in protocol.BrowserInput) {
	queue := t.queue
	cost := int64(len(in.Bytes) + Overhead)
	switch {
	case len(in.Bytes) > protocol.MaxInputBytes:
		t.complain(protocol.Errorf(protocol.KindTooLarge, "input of one message is over %d bytes", protocol.MaxInputBytes))
		fallthrough
	case !t.credit.TryAcquire(cost):
		queue.drop(t, protocol.RefusedBusy, in.Seq)
	case !queue.room.TryAcquire(cost):
		t.credit.Release(cost)
		queue.drop(t, protocol.RefusedBusy, in.Seq)
	default:
		queue.accept(t, message{input: in.Bytes, cost: cost, seq: in.Seq, term: in.Term})
	}
}
