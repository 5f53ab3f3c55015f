package outbound

import (
	"encoding/binary"
	"net/netip"
)

// A Reason says why an address is not on the internet. The empty Reason means
// that it is.
type Reason string

// The reasons of [Judge].
const (
	Loopback      Reason = "loopback"
	Private       Reason = "private"
	LinkLocal     Reason = "link-local"
	Metadata      Reason = "metadata"    // where a cloud tells a machine its secrets
	CarrierNAT    Reason = "carrier NAT" // RFC 6598
	Multicast     Reason = "multicast"
	Unspecified   Reason = "unspecified"
	Documentation Reason = "documentation"
	Reserved      Reason = "reserved"
	Embedded      Reason = "embedded IPv4" // a form of IPv4 in IPv6 that no host needs
	OwnAddress    Reason = "own"           // of an interface of this machine
)

// A refusal is a prefix that nobody may be sent to.
type refusal struct {
	prefix netip.Prefix
	reason Reason
}

// refused4 is IANA's registry of special IPv4 addresses, and those of clouds.
// The first match counts.
var refused4 = []refusal{
	{netip.MustParsePrefix("169.254.169.254/32"), Metadata},
	{netip.MustParsePrefix("169.254.170.2/32"), Metadata},   // AWS, containers
	{netip.MustParsePrefix("100.100.100.200/32"), Metadata}, // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), Metadata},   // Azure; not private by any registry
	{netip.MustParsePrefix("192.0.0.192/32"), Metadata},     // Oracle
	{netip.MustParsePrefix("0.0.0.0/8"), Unspecified},
	{netip.MustParsePrefix("10.0.0.0/8"), Private},
	{netip.MustParsePrefix("100.64.0.0/10"), CarrierNAT},
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), LinkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), Private},
	{netip.MustParsePrefix("192.0.0.0/24"), Reserved},
	{netip.MustParsePrefix("192.0.2.0/24"), Documentation},
	{netip.MustParsePrefix("192.88.99.0/24"), Reserved}, // relays of 6to4
	{netip.MustParsePrefix("192.168.0.0/16"), Private},
	{netip.MustParsePrefix("198.18.0.0/15"), Reserved}, // benchmarks
	{netip.MustParsePrefix("198.51.100.0/24"), Documentation},
	{netip.MustParsePrefix("203.0.113.0/24"), Documentation},
	{netip.MustParsePrefix("224.0.0.0/4"), Multicast},
	{netip.MustParsePrefix("240.0.0.0/4"), Reserved}, // and broadcast
}

// refused6 holds what is refused in IPv6. What is neither in it nor in
// global6 is reserved.
var refused6 = []refusal{
	{netip.MustParsePrefix("::/128"), Unspecified},
	{netip.MustParsePrefix("::1/128"), Loopback},
	{netip.MustParsePrefix("::/96"), Embedded},             // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), Embedded},   // IPv4-translated
	{netip.MustParsePrefix("64:ff9b:1::/48"), Embedded},    // NAT64 of one's own network
	{netip.MustParsePrefix("fd00:ec2::254/128"), Metadata}, // AWS
	{netip.MustParsePrefix("fd20:ce::254/128"), Metadata},  // Google
	{netip.MustParsePrefix("fd00:42::42/128"), Metadata},   // Scaleway
	{netip.MustParsePrefix("fc00::/7"), Private},
	{netip.MustParsePrefix("fe80::/10"), LinkLocal},
	{netip.MustParsePrefix("fec0::/10"), Private}, // site-local
	{netip.MustParsePrefix("ff00::/8"), Multicast},
	{netip.MustParsePrefix("2001:2::/48"), Reserved},  // benchmarks
	{netip.MustParsePrefix("2001:10::/28"), Reserved}, // ORCHID
	{netip.MustParsePrefix("2001:20::/28"), Reserved}, // ORCHIDv2
	{netip.MustParsePrefix("2001:db8::/32"), Documentation},
	{netip.MustParsePrefix("3fff::/20"), Documentation},
}

var (
	global6 = netip.MustParsePrefix("2000::/3")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixto4  = netip.MustParsePrefix("2002::/16")
	teredo  = netip.MustParsePrefix("2001::/32")
)

// Judge returns why addr must not be dialled for somebody else, "" when it is
// an address of the internet. IPv4 inside IPv6 is judged as what it stands
// for. It is a pure function of the address.
func Judge(addr netip.Addr) Reason {
	if !addr.IsValid() {
		return Unspecified
	}
	if addr.Zone() != "" {
		return LinkLocal // a zone means one link of this machine
	}
	addr = addr.Unmap()
	if addr.Is4() {
		return match(refused4, addr)
	}
	if reason := match(refused6, addr); reason != "" {
		return reason
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return Judge(netip.AddrFrom4([4]byte(b[12:16])))
	case sixto4.Contains(addr):
		return Judge(netip.AddrFrom4([4]byte(b[2:6])))
	case teredo.Contains(addr):
		return judgeTeredo(b)
	case !global6.Contains(addr):
		return Reserved
	case isatap(b):
		return Judge(netip.AddrFrom4([4]byte(b[12:16])))
	}
	return ""
}

func match(table []refusal, addr netip.Addr) Reason {
	for _, row := range table {
		if row.prefix.Contains(addr) {
			return row.reason
		}
	}
	return ""
}

// judgeTeredo judges the server, and the client, whose bits are inverted.
func judgeTeredo(b [16]byte) Reason {
	if reason := Judge(netip.AddrFrom4([4]byte(b[4:8]))); reason != "" {
		return reason
	}
	var client [4]byte
	binary.BigEndian.PutUint32(client[:], ^binary.BigEndian.Uint32(b[12:16]))
	return Judge(netip.AddrFrom4(client))
}

// isatap reports whether the interface's part of an address holds an IPv4
// address as RFC 5214 has it.
func isatap(b [16]byte) bool {
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
