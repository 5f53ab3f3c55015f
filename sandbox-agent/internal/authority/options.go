package authority

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// A Dialer opens connections to the control plane.
type Dialer interface {
	// Dial goes through a registered tunnel.
	Dial(ctx context.Context) (net.Conn, error)
	// DialUnregistered goes through a relay that knows nothing of the sandbox.
	DialUnregistered(ctx context.Context) (net.Conn, error)
}

// Relays are those that the sandbox is connected to.
type Relays interface {
	// Adopt hears which relays there are, "host:port", with each renewal.
	Adopt(relays []string)
}

// Options say whose standing it is, and with whom.
type Options struct {
	Identity   *Identity
	KeysMaxAge time.Duration // how long keys are believed without news of them
	Dialer     Dialer
	Relays     Relays
	Audit      AuditLog
	// Changed receives whenever a problem may have come or gone. Nothing waits
	// for a reader.
	Changed chan<- struct{}
	Log     *slog.Logger
}
