package cookies

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
)

// A ground is what the pairings of a session share.
type ground struct {
	id   protocol.SessionID
	turn turn
	over life  // ends with the session
	push int64 // the number of the latest one. Owned by whoever holds turn
}

// A turn is held by whoever changes a session's cookies, one after the other: pairings
// may have the same ones. It is taken before the Sink's mu.
type turn chan struct{}

// take waits for the turn as long as ctx allows.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return protocol.Fault(protocol.KindUnavailable, ctx.Err())
	}
}

func (t turn) give() { <-t }

// A life is a context that ends with its channel.
type life struct {
	context.Context
	ended chan struct{}
}

// Done implements [context.Context].
func (l life) Done() <-chan struct{} { return l.ended }

// Err implements [context.Context].
func (l life) Err() error {
	select {
	case <-l.ended:
		return context.Canceled
	default:
		return nil
	}
}
