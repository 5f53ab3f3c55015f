package uplink

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// Generations numbers registrations and roles: each is above all before it, also
// those of an agent that ended.
type Generations interface {
	NextGeneration() (uint64, error)
}

// An Identity proves to relays which sandbox registers.
type Identity interface {
	// SignHello adds the certificate and the signature to hello, the answer to a
	// relay's challenge on the connection that exporter belongs to.
	SignHello(hello *protocol.Hello, challenge protocol.Challenge, exporter []byte) error
	// Doubted hears that a relay refused the certificate.
	Doubted()
}

// A Server answers what relays ask.
type Server interface {
	// Serve serves a registered tunnel until ctx or session ends.
	Serve(ctx context.Context, session *tunnel.Session)
}

// Options say how relays are reached.
type Options struct {
	Relays      []string         // "host:port"; each sandbox tries them in an order of its own, see package rendezvous
	Pinned      bool             // Relays are tried as they are listed, and Adopt doesn't replace them
	TLS         *tls.Config      // verifies relays
	Carriers    []tunnel.Carrier // by which relays may be reached; none: by any
	Hello       protocol.Hello   // what each registration says: sandbox, instance, revision, isolation
	Generations Generations
	Log         *slog.Logger

	// Patience is how long the first dial waits for a relay's CHALLENGE; default
	// 1 s. Each dial that took too long is followed by one that may take twice as
	// long, up to protocol.HandshakeTimeout: a relay that is killed in the middle
	// of a dial and started again knows nothing of it, and doesn't say so. A relay
	// that has said CHALLENGE may have many others to let in first.
	Patience time.Duration
}
