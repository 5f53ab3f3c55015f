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
