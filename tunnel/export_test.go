package tunnel

import (
	"context"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// The bounds that tests reach for.
const (
	MaxConnects          = maxConnects
	ConnectBurst         = connectBurst
	ConnectsPerSecond    = connectsPerSecond
	AddressConnectBurst  = addressConnectBurst
	MaxConnectAddresses  = maxAddresses
	RefusalTime          = refusalTime
	AddressConnectPerSec = addressConnectsPerSecond
)

// A Connector serves connect streams on any carrier.
type Connector struct{ c *connector }

func NewConnector(cfg ListenConfig) *Connector {
	return &Connector{newConnector(cfg.Connect, cfg.Connected)}
}

// Serve serves what a Listener would, and returns what the first stream was
// named.
func (c *Connector) Serve(ctx context.Context, conn carrier.Conn) (name string, err error) {
	stream, lane, err := greet(ctx, conn)
	if err != nil {
		return string(lane), err
	}
	c.c.serve(ctx, conn, stream)
	return string(lane), nil
}

// Addresses returns how many addresses are told apart at the moment.
func (c *Connector) Addresses() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return len(c.c.addresses)
}
