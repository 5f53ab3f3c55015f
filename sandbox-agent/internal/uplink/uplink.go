// Package uplink keeps the sandbox's tunnels to relays: it dials and registers
// them, says which one is primary, and moves before a relay goes away.
package uplink

import (
	"context"
	"errors"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// Run keeps tunnels to up to two relays until ctx ends, or until another copy of
// this sandbox takes over, which is an error. It is called once.
func (t *Tunnels) Run(ctx context.Context, identity Identity, server Server) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(t.hurry))
	for i := range t.hurry {
		go func() { // Run waits for it below
			ended <- newKeeper(t, identity, server).run(ctx, i)
			cancel()
		}()
	}
	err := <-ended
	for range len(t.hurry) - 1 {
		<-ended
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// Dial opens a connection to the control plane through the primary tunnel.
func (t *Tunnels) Dial(ctx context.Context) (net.Conn, error) {
	session := t.Primary()
	if session == nil {
		return nil, protocol.Errorf(protocol.KindUnavailable, "no tunnel")
	}
	stream, _, err := session.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// DialUnregistered opens a connection to the control plane through any relay, as
// an agent that isn't registered.
func (t *Tunnels) DialUnregistered(ctx context.Context) (net.Conn, error) {
	var last error = protocol.Errorf(protocol.KindUnavailable, "no relay is known")
	for _, addr := range t.known() {
		conn, err := tunnel.Connect(ctx, tunnel.DialConfig{Addr: addr, TLS: t.options.TLS, Carriers: t.options.Carriers})
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}
