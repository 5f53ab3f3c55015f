package agent

import (
	"errors"
	"fmt"
	"net"

	"github.com/fairlead/fairlead/sandbox-agent/internal/loopback"
)

// listeners are where terminals' programs reach the agent. They are open before
// anything else is built: each part has to keep off the others' ports.
type listeners struct{ broker, egress, mcp net.Listener }

// listen opens the listeners.
func (c *Config) listen() (l listeners, err error) {
	for _, each := range []struct {
		flag, address string
		listener      *net.Listener
	}{
		{"broker-listen", c.BrokerListen, &l.broker}, {"egress-listen", c.EgressListen, &l.egress}, {"mcp-listen", c.MCPListen, &l.mcp},
	} {
		if *each.listener, err = loopback.Listen(each.address); err != nil {
			return l, errors.Join(fmt.Errorf("--%s: %w", each.flag, err), l.Close())
		}
	}
	return l, nil
}

// Close closes what is open. Those who served have closed theirs already.
func (l listeners) Close() error {
	for _, listener := range []net.Listener{l.broker, l.egress, l.mcp} {
		if listener != nil {
			listener.Close()
		}
	}
	return nil
}

// ports returns the ports of all.
func (l listeners) ports() (ports loopback.Agent) {
	for _, listener := range []net.Listener{l.broker, l.egress, l.mcp} {
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
