package feature

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Followed is what relays follow for their viewers, by streams of a kind of its
// own: events go to the relay, nothing comes back.
type Followed interface {
	// StreamKind is the kind of those streams.
	StreamKind() protocol.StreamKind
	// Follow opens what the params of OPEN name, if the grant allows it; it was
	// verified, and Events end with it. opened is the result of OPENED, as JSON. An
	// error refuses the stream.
	Follow(grant *jws.Grant, params json.RawMessage) (events Events, opened any, err error)
}

// Events come one after the other, to one goroutine.
type Events interface {
	// Next waits for the next event. After the last one it fails with io.EOF; any
	// other error cuts the relay off, which comes back with its position.
	Next(ctx context.Context) (protocol.Message, error)
	Close()
}

// Joined is what relays use for their viewers by streams that go both ways, of a
// kind of its own.
type Joined interface {
	// JoinKind is the kind of those streams.
	JoinKind() protocol.StreamKind
	// Join opens what the params of OPEN name, if the grant allows it; it was
	// verified, and is the stream's first one. opened is the result of OPENED, as
	// JSON. An error refuses the stream; otherwise End is called.
	Join(grant *jws.Grant, params json.RawMessage) (s Stream, opened any, err error)
}

// A Stream is a relay's stream. One goroutine calls Next; the other methods are
// for other goroutines and don't wait for the relay.
type Stream interface {
	// Next waits for the next message for the relay. After the last one it fails
	// with io.EOF. A message is valid until the next call.
	Next(context.Context) (protocol.Message, error)
	// Obey handles a frame from the relay. An error ends the stream.
	Obey(protocol.Message) error
	// AddGrant adds a verified grant to those of the stream. handle is the relay's
	// name for its bearer.
	AddGrant(g *jws.Grant, handle uint64) error
	// Post makes Next return m.
	Post(m protocol.Message)
	// End ends the stream. why is nil after Next's io.EOF, and io.EOF if the relay
	// has closed it.
	End(why error)
}
