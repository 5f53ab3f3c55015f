package input

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// Overhead is charged per message besides its bytes, so that a flood of tiny
// messages is bounded, too.
const Overhead = 64

// An Outbox tells a typist what became of its input.
type Outbox interface {
	Tell(m protocol.ServerMessage)
	// Confirm says that all input up to seq was written.
	Confirm(seq uint64)
}

// Options are fixed facts about a typist.
type Options struct {
	ID      turn.SocketID
	User    protocol.UserID
	Client  string // its id for the agent
	Counts  bool   // it numbers its input
	Follows bool   // it never gives the terminal its size
	Outbox  Outbox
}

// A Typist is the queue's view of a viewer: its id, and the progress of its
// input.
type Typist struct {
	// Static after construction.
	queue *Queue
	Options
	credit *semaphore.Weighted // input under way

	// Guarded by queue.mu.
	attached    bool      // its input is judged
	gone        bool      // left
	waiting     []message // typed before it was attached, or after a request to yield
	yieldsRead  int       // requests to yield control that its reader has seen
	yieldsHeard int       // those that run knows
	yieldsDone  int       // those done or refused
	nextSeq     uint64
	gate        gate
	taking      taking
}

// Init makes t a typist of q. Its input waits until Attach.
func (t *Typist) Init(q *Queue, o Options) {
	*t = Typist{queue: q, Options: o, credit: semaphore.NewWeighted(protocol.MaxInputUnacked)}
}

// complain tells the viewer that its message could not be obeyed.
func (t *Typist) complain(err error) {
	e := protocol.AsError(err)
	t.Outbox.Tell(protocol.ErrorMessage{Name: e.Kind.Name(), Message: e.Error()})
}

// Credit is the room for the typist's own unacknowledged input.
func (t *Typist) Credit() *semaphore.Weighted { return t.credit }

// Waiting returns how many of the typist's messages wait for a decision.
func (t *Typist) Waiting() int {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	return len(t.waiting)
}

// Type hands the queue a plain viewer's input, in pieces that fit the tunnel.
// It waits until there is room, so the socket is not read meanwhile; ctx ends
// the wait.
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

// TypeNumbered hands the queue the input of a viewer that numbers it and names
// its term. Without room it is refused: its client repeats it, and its socket
// is still read.
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
