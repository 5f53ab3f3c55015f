package outbound

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// Static maps hosts to addresses that the operator vouches for, whatever they
// are. A host with Port 0 stands for all its ports; an address with port 0 is
// dialled at the port that was asked for.
type Static map[hostname.Host]netip.AddrPort

// ParseStatic reads entries of the form "host[:port]=address[:port]"; an IPv6
// address with a port is in brackets.
func ParseStatic(entries []string) (Static, error) {
	static := make(Static, len(entries))
	for _, entry := range entries {
		from, to, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%.100q: not host[:port]=address[:port]", entry)
		}
		pattern, err := hostname.ParsePattern(from)
		if err != nil || pattern.Wildcard() {
			return nil, fmt.Errorf("%.100q: not a host before the =", entry)
		}
		host := pattern.Base().WithPort(pattern.Port())
		if _, twice := static[host]; twice {
			return nil, fmt.Errorf("%s is named twice", host)
		}
		addr, err := parseTarget(to)
		if err != nil {
			return nil, fmt.Errorf("%.100q: not an address behind the =", entry)
		}
		static[host] = addr
	}
	return static, nil
}

func parseTarget(text string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr.Unmap(), 0), nil
	}
	target, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(target.Addr().Unmap(), target.Port()), nil
}

// Lookup returns where h is dialled at port, false when the operator says
// nothing about it. What is said of one port goes before what is said of all.
func (s Static) Lookup(h hostname.Host, port int) (netip.AddrPort, bool) {
	target, ok := s[h.WithPort(port)]
	if !ok {
		target, ok = s[h.WithPort(0)]
	}
	if !ok {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(target.Addr(), cmp.Or(target.Port(), uint16(port))), true
}

// Hosts returns the hosts of s in order, each as "host" or "host:port".
func (s Static) Hosts() []string {
	hosts := make([]string, 0, len(s))
	for host := range maps.Keys(s) {
		hosts = append(hosts, host.String())
	}
	slices.Sort(hosts)
	return hosts
}
