// Package outbound opens connections for programs in the sandbox, to hosts on
// the internet and to nothing inside: a name is resolved once, every address is
// judged, and the judged address itself is dialled.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

const (
	// DefaultTimeout bounds one dial, resolving included.
	DefaultTimeout = 10 * time.Second
	// fallbackDelay is how long an address is tried alone (RFC 8305).
	fallbackDelay = 250 * time.Millisecond
	// maxAddrs bounds the addresses of one host that are tried.
	maxAddrs = 8
)

// A Resolver looks a name up. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Dialer opens connections. Its zero value is ready for use, and it is safe
// for concurrent use while its fields are left alone.
type Dialer struct {
	Static   Static        // the operator's exceptions: not resolved and not judged
	Resolver Resolver      // nil: the system's
	Timeout  time.Duration // of one dial; 0: DefaultTimeout

	// In tests.
	dial func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) // nil: TCP
	own  func() []netip.Addr                                              // nil: the interfaces' addresses
}

// DialHost opens a TCP connection to h at port; port 0 means h.Port. Where an
// operator's exception names h, its address is dialled. It fails with
// KindForbidden when all addresses of h are refused, KindInvalid without a
// host or port, and KindUpstream when h can't be resolved or reached.
func (d *Dialer) DialHost(ctx context.Context, h hostname.Host, port int) (net.Conn, error) {
	if port == 0 {
		port = h.Port
	}
	if port < 1 || port > 65535 || h.WithPort(0) == (hostname.Host{}) {
		return nil, protocol.Errorf(protocol.KindInvalid, "a connection needs a host and a port")
	}
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if target, ok := d.Static.Lookup(h, port); ok {
		return d.race(ctx, h, []netip.AddrPort{target})
	}
	addrs, err := d.resolve(ctx, h)
	if err != nil {
		return nil, err
	}
	targets, err := d.judge(h, addrs, port)
	if err != nil {
		return nil, err
	}
	return d.race(ctx, h, targets)
}

// Check returns the error of [Dialer.DialHost] as far as it is known without
// the network: an address that is refused, or a name of this machine.
func (d *Dialer) Check(h hostname.Host, port int) error {
	if _, ok := d.Static.Lookup(h, port); ok {
		return nil
	}
	if h.IsLoopback() {
		return forbidden(h, Loopback)
	}
	if h.IsIP() {
		_, err := d.judge(h, []netip.Addr{h.IP}, port)
		return err
	}
	return nil
}

func (d *Dialer) resolve(ctx context.Context, h hostname.Host) ([]netip.Addr, error) {
	if h.IsIP() {
		return []netip.Addr{h.IP}, nil
	}
	if h.IsLoopback() {
		return nil, forbidden(h, Loopback) // whatever a resolver makes of it
	}
	var addrs []netip.Addr
	var err error
	if d.Resolver != nil {
		addrs, err = d.Resolver.LookupNetIP(ctx, "ip", h.Name)
	} else {
		// The final dot keeps the search list of resolv.conf out.
		addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", h.Name+".")
	}
	if err != nil || len(addrs) == 0 {
		return nil, &protocol.Error{Kind: protocol.KindUpstream, Message: h.Hostname() + " can't be resolved", Err: err}
	}
	return addrs, nil
}

// judge returns the addresses that may be dialled, or why there is none.
func (d *Dialer) judge(h hostname.Host, addrs []netip.Addr, port int) ([]netip.AddrPort, error) {
	own := d.own
	if own == nil {
		own = interfaceAddrs
	}
	mine := make(map[netip.Addr]bool)
	for _, addr := range own() {
		mine[addr.Unmap().WithZone("")] = true
	}
	var targets []netip.AddrPort
	var reason Reason
	for _, addr := range addrs {
		why := Judge(addr)
		if why == "" && mine[addr.Unmap()] {
			why = OwnAddress
		}
		if why == "" {
			targets = append(targets, netip.AddrPortFrom(addr.Unmap(), uint16(port)))
		} else if reason == "" {
			reason = why
		}
	}
	if len(targets) == 0 {
		return nil, forbidden(h, reason)
	}
	return interleave(targets), nil
}

func forbidden(h hostname.Host, reason Reason) error {
	return protocol.Errorf(protocol.KindForbidden, "%s is not on the internet (%s)", h.Hostname(), reason)
}

// interfaceAddrs returns the addresses of this machine: what listens there is
// no more public than what listens on loopback.
func interfaceAddrs() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the other rules hold
	}
	var addrs []netip.Addr
	for _, a := range all {
		if prefix, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(prefix.IP); ok {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// interleave alternates the families, the first one's first, and bounds the
// number of targets.
func interleave(targets []netip.AddrPort) []netip.AddrPort {
	var first, second []netip.AddrPort
	for _, t := range targets {
		if t.Addr().Is4() == targets[0].Addr().Is4() {
			first = append(first, t)
		} else {
			second = append(second, t)
		}
	}
	var mixed []netip.AddrPort
	for i := 0; len(mixed) < min(len(targets), maxAddrs); i++ {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(second) {
			mixed = append(mixed, second[i])
		}
	}
	return mixed[:min(len(mixed), maxAddrs)]
}

type dialed struct {
	conn net.Conn
	err  error
}

// race tries targets one after the other, the next when one has failed or has
// had its head start, and returns the first connection.
func (d *Dialer) race(ctx context.Context, h hostname.Host, targets []netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed)
	started, running := 0, 0
	start := func() {
		target := targets[started]
		started++
		running++
		go func() { // ends with its dial, which ctx bounds
			conn, err := d.dialOne(ctx, target)
			select {
			case results <- dialed{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
			}
		}()
	}
	start()
	headStart := time.NewTimer(fallbackDelay)
	defer headStart.Stop()
	var failures []error
	for running > 0 {
		select {
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, nil
			}
			failures = append(failures, r.err)
		case <-headStart.C:
		case <-ctx.Done():
			return nil, unreachable(h, errors.Join(append(failures, ctx.Err())...))
		}
		if started < len(targets) {
			start()
			headStart.Reset(fallbackDelay)
		}
	}
	return nil, unreachable(h, errors.Join(failures...))
}

func unreachable(h hostname.Host, err error) error {
	return &protocol.Error{
		Kind: protocol.KindUpstream, Message: h.Hostname() + " can't be reached",
		Err: fmt.Errorf("dial %s: %w", h.Hostname(), err),
	}
}

func (d *Dialer) dialOne(ctx context.Context, target netip.AddrPort) (net.Conn, error) {
	if d.dial != nil {
		return d.dial(ctx, target)
	}
	var tcp net.Dialer
	return tcp.DialContext(ctx, "tcp", target.String())
}
