package hub

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// inputOverhead is charged per message beside its bytes, so that a flood of tiny
// messages is bounded like one of large ones.
const inputOverhead = 64

// A typist is a viewer as the intake knows it: what its input is called, and how
// far that has come.
type typist struct {
	// Static after construction.
	intake  *intake
	id      turn.SocketID
	user    protocol.UserID
	client  string              // names its input to the agent
	counts  bool                // it numbers its input
	follows bool                // it never gives the terminal its size
	outbox  *outbox             // where it is told what became of its input
	credit  *semaphore.Weighted // input under way

	// Guarded by intake.mu.
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

// typed hands the intake what a plain viewer typed, in the pieces that the tunnel
// carries. It returns when there is room for it, so a socket whose input is
// not taken is not read; ctx ends the wait.
func (t *typist) typed(ctx context.Context, input []byte) error {
	intake := t.intake
	for len(input) > 0 {
		piece := input[:min(len(input), protocol.MaxInputBytes)]
		input = input[len(piece):]
		cost := int64(len(piece) + inputOverhead)
		if err := intake.reserve(ctx, t.credit, cost); err != nil {
			return err
		}
		if err := intake.reserve(ctx, intake.queue, cost); err != nil {
			return err
		}
		intake.accept(t, message{input: piece, cost: cost})
	}
	return nil
}

// numbered hands the intake what a viewer typed who numbers its input and
// names the term. What there is no room for is refused: its client knows what
// to do, and its socket is read on.
func (t *typist) numbered(in protocol.BrowserInput) {
	intake := t.intake
	cost := int64(len(in.Bytes) + inputOverhead)
	switch {
	case len(in.Bytes) > protocol.MaxInputBytes:
		t.outbox.complain(protocol.Errorf(protocol.KindTooLarge, "input of one message is over %d bytes", protocol.MaxInputBytes))
		fallthrough
	case !t.credit.TryAcquire(cost):
		intake.drop(t, protocol.RefusedBusy, in.Seq)
	case !intake.queue.TryAcquire(cost):
		t.credit.Release(cost)
		intake.drop(t, protocol.RefusedBusy, in.Seq)
	default:
		intake.accept(t, message{input: in.Bytes, cost: cost, seq: in.Seq, term: in.Term})
	}
}
