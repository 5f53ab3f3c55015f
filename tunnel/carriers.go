package tunnel

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

// A Carrier names the protocol below a tunnel.
type Carrier string

const (
	CarrierQUIC      Carrier = "quic"
	CarrierWebSocket Carrier = "websocket"
	CarrierMemory    Carrier = "memory" // both ends in one process, in tests
)

// Carriers returns the carriers that an agent can dial, the preferred one
// first. [Listen] accepts all of them.
func Carriers() []Carrier { return []Carrier{CarrierQUIC, CarrierWebSocket} }

// ParseCarrier returns the carrier with a name. It fails for one that an agent
// can't dial.
func ParseCarrier(name string) (Carrier, error) {
	if c := Carrier(name); slices.Contains(Carriers(), c) {
		return c, nil
	}
	return "", fmt.Errorf("no carrier is called %q: there are %q", name, Carriers())
}

// dial connects to addr by c.
func (c Carrier) dial(ctx context.Context, addr string, config *tls.Config) (carrier.Conn, error) {
	switch c {
	case CarrierQUIC:
		return quiclink.Dial(ctx, addr, config)
	case CarrierWebSocket:
		return wsslink.Dial(ctx, addr, config)
	}
	return nil, fmt.Errorf("tunnel: no carrier is called %q", c)
}

// carrierOf returns a connection's carrier.
func carrierOf(conn carrier.Conn) Carrier {
	if n, ok := conn.(carrier.Named); ok {
		return Carrier(n.Carrier())
	}
	return CarrierMemory
}
