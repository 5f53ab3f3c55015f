package browser

import (
	"context"
	"io"
	"log"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// maxAddrs bounds the tried addresses of one host.
const maxAddrs = 8

// discardLog drops net/http's messages about pages' requests.
var discardLog = log.New(io.Discard, "", 0)

// ports are the ports of all guards.
type ports struct {
	mu     sync.Mutex
	listen map[int]bool // guarded by mu
}

func (p *ports) add(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listen[port] = true
}

func (p *ports) remove(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listen, port)
}

func (p *ports) has(port int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listen[port]
}

// port returns the guard's port.
func (g *guard) port() int {
	addr, err := netip.ParseAddrPort(g.address())
	if err != nil {
		return 0 // impossible
	}
	return int(addr.Port())
}

// splitTarget splits a connection's target into host and port.
func splitTarget(target string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(target)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil || host == "" || port < 1 || port > 65535 {
		return "", 0, protocol.Errorf(protocol.KindInvalid, "not a host and a port")
	}
	return host, port, nil
}

// namesThisMachine reports whether host is a name or address of this machine,
// as far as known without resolving it.
func namesThisMachine(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return isLocal(addr)
	}
	return isLocalhost(host)
}

// isLocalhost reports whether host is a name that is never resolved (RFC 6761).
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isLocal reports whether addr belongs to this machine, on any interface.
func isLocal(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return true // unknown, so refuse it
	}
	for _, own := range interfaces {
		if prefix, err := netip.ParsePrefix(own.String()); err == nil && prefix.Addr().Unmap().WithZone("") == addr {
			return true
		}
	}
	return false
}

// resolve returns the addresses of host.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if isLocalhost(host) {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addrs) == 0 {
		return nil, &protocol.Error{Kind: protocol.KindUpstream, Message: host + " can't be resolved", Err: err}
	}
	return addrs[:min(len(addrs), maxAddrs)], nil
}

// judge returns why a page may not connect to port of addr. On this machine it
// may reach servers in the session's terminals, if that can be determined, and
// never the agent.
func (g *guard) judge(addr netip.Addr, port int) error {
	if !isLocal(addr) {
		return nil
	}
	refused := protocol.Errorf(protocol.KindForbidden, "port %d of this machine is not for pages", port)
	if g.opts.Ports == nil || g.own.has(port) || g.opts.Ports.Owns(port) {
		return refused
	}
	if ours, err := g.opts.Ports.Belongs(g.session, port); err != nil || !ours {
		return refused
	}
	return nil
}
