// Package hostname makes one spelling of every host: whoever decides about a
// host, and whoever dials it, must mean the same one.
//
// A name may be written in any case, with a final dot, in Unicode or in
// punycode; an IPv4 address in decimal, octal or hexadecimal with one to four
// parts, or mapped into IPv6. All spellings of one host parse to one [Host].
// What two programs could read differently (user information, backslashes,
// percent signs, empty labels, zones) is refused instead.
package hostname

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

const (
	// MaxNameBytes is the longest name, in its canonical form.
	MaxNameBytes = 253
	// MaxLabelBytes is the longest label of a name, in its canonical form.
	MaxLabelBytes = 63
	// maxInputBytes bounds what is looked at: Unicode takes more room than
	// the punycode that it becomes.
	maxInputBytes = 1024
	maxPort       = 65535
)

// The ways in which a text is no host. The errors of this package wrap one of
// them and never quote what was parsed.
var (
	ErrName = errors.New("not a host name")
	ErrAddr = errors.New("not an IP address")
	ErrPort = errors.New("not a port")
)

// A Host is one canonical host, with a port where it has one. Hosts are equal
// (==) exactly when they are the same host and port.
type Host struct {
	Name string     // lower case, punycode, without a final dot; "" for an address
	IP   netip.Addr // IPv4 never mapped into IPv6, no zone; invalid for a name
	Port int        // 1 to 65535; 0: none was asked for
}

// Parse returns the host of "host", "host:port", "[v6]", "[v6]:port" or a bare
// IPv6 address. Where the text has no port, or an empty one, the port is
// defaultPort; a defaultPort of 0 then makes it an error.
func Parse(hostport string, defaultPort int) (Host, error) {
	host, port, err := split(hostport)
	if err != nil {
		return Host{}, err
	}
	h, err := parseHost(host)
	if err != nil {
		return Host{}, err
	}
	if port == "" {
		if defaultPort < 1 || defaultPort > maxPort {
			return Host{}, fmt.Errorf("%w: it is missing", ErrPort)
		}
		h.Port = defaultPort
		return h, nil
	}
	h.Port, err = ParsePort(port)
	if err != nil {
		return Host{}, err
	}
	return h, nil
}

// ParseName returns the host of a text that must have no port, as in the
// server name of TLS. Its Port is 0. An IPv6 address may have brackets.
func ParseName(name string) (Host, error) {
	host, port, err := split(name)
	if err != nil {
		return Host{}, err
	}
	if port != "" || strings.HasSuffix(name, ":") && !strings.HasSuffix(name, "::") {
		return Host{}, fmt.Errorf("%w: it has a port", ErrName)
	}
	return parseHost(host)
}

// ParsePort returns the port of one to five digits, 1 to 65535.
func ParsePort(text string) (int, error) {
	if len(text) > len("65535") || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%w: digits only, up to %d", ErrPort, maxPort)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > maxPort {
		return 0, fmt.Errorf("%w: it must be from 1 to %d", ErrPort, maxPort)
	}
	return port, nil
}

// split separates the port, without its colon, from the host, which keeps
// the brackets of an IPv6 address.
func split(hostport string) (host, port string, err error) {
	if len(hostport) > maxInputBytes {
		return "", "", fmt.Errorf("%w: over %d bytes", ErrName, maxInputBytes)
	}
	if strings.HasPrefix(hostport, "[") {
		end := strings.IndexByte(hostport, ']')
		if end < 0 {
			return "", "", fmt.Errorf("%w: a bracket is missing", ErrAddr)
		}
		host, rest := hostport[:end+1], hostport[end+1:]
		port, colon := strings.CutPrefix(rest, ":")
		if rest != "" && !colon {
			return "", "", fmt.Errorf("%w: text behind the bracket", ErrAddr)
		}
		return host, port, nil
	}
	switch strings.Count(hostport, ":") {
	case 0:
		return hostport, "", nil
	case 1:
		host, port, _ = strings.Cut(hostport, ":")
		return host, port, nil
	default:
		return hostport, "", nil // IPv6 or nothing
	}
}

func parseHost(text string) (Host, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		return parse6(strings.TrimSuffix(inner, "]"))
	}
	if strings.Contains(text, ":") {
		return parse6(text)
	}
	name, err := canonicalName(text)
	if err != nil {
		return Host{}, err
	}
	if endsInNumber(name) {
		ip, err := parse4(name)
		if err != nil {
			return Host{}, err
		}
		return Host{IP: ip}, nil
	}
	return Host{Name: name}, nil
}

// parse6 takes no zone: which interface is meant is no business of a client.
func parse6(text string) (Host, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil || !strings.Contains(text, ":") {
		return Host{}, fmt.Errorf("%w: bad IPv6", ErrAddr)
	}
	if ip.Zone() != "" || strings.Contains(text, "%") {
		return Host{}, fmt.Errorf("%w: zones are refused", ErrAddr)
	}
	return Host{IP: ip.Unmap()}, nil
}

// lookup maps a name as those who resolve it do. Hyphens are free: names like
// r3---sn-x.example are in use.
var lookup = idna.New(
	idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.CheckHyphens(false), idna.StrictDomainName(false),
)

// canonicalName returns a name in lower case and punycode, without a final
// dot. What it returns may still be an IPv4 address.
func canonicalName(text string) (string, error) {
	name := text
	if !plain(name) {
		mapped, err := lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("%w: bad internationalized name", ErrName)
		}
		// Punycode that stands for something else than it decodes to, once it
		// is mapped, would be two hosts.
		again, err := lookup.ToASCII(mapped)
		if err != nil || again != mapped {
			return "", fmt.Errorf("%w: ambiguous punycode", ErrName)
		}
		name = mapped
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if len(name) == 0 || len(name) > MaxNameBytes {
		return "", fmt.Errorf("%w: it must have from 1 to %d bytes", ErrName, MaxNameBytes)
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > MaxLabelBytes {
			return "", fmt.Errorf("%w: a label must have from 1 to %d bytes", ErrName, MaxLabelBytes)
		}
		for i := range len(label) {
			if !labelByte(label[i]) {
				return "", fmt.Errorf("%w: only letters, digits, hyphens and underscores", ErrName)
			}
		}
	}
	return name, nil
}

// plain reports whether name is ASCII without punycode.
func plain(name string) bool {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return !strings.Contains(strings.ToLower(name), "xn--")
}

// labelByte takes the underscore, which resolvers and certificates know.
func labelByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// endsInNumber reports whether the last label is a number, which no name's is:
// such a text is an IPv4 address or nothing.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(last, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

// parse4 reads an IPv4 address as inet_aton(3) does: up to four parts, the
// last of which fills what the others leave.
func parse4(text string) (netip.Addr, error) {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return netip.Addr{}, fmt.Errorf("%w: more than four parts", ErrAddr)
	}
	var sum uint64
	for i, part := range parts {
		n, err := number(part)
		if err != nil {
			return netip.Addr{}, err
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		if n >= 1<<bits {
			return netip.Addr{}, fmt.Errorf("%w: a part is too large", ErrAddr)
		}
		sum = sum<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), nil
}

// number reads a part of an address in lower case, as C does.
func number(part string) (uint64, error) {
	base, digits := 10, part
	if hex, ok := strings.CutPrefix(part, "0x"); ok {
		base, digits = 16, hex
	} else if len(part) > 1 && part[0] == '0' {
		base, digits = 8, part[1:]
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: bad IPv4", ErrAddr)
	}
	return n, nil
}

// IsIP reports whether h is an address.
func (h Host) IsIP() bool { return h.IP.IsValid() }

// Hostname returns the name or the address, without brackets and port.
func (h Host) Hostname() string {
	if h.IsIP() {
		return h.IP.String()
	}
	return h.Name
}

// String returns "host:port", or the host alone where there is no port; IPv6
// in brackets. [Parse] reads it back.
func (h Host) String() string {
	host := h.Hostname()
	if h.IP.Is6() {
		host = "[" + host + "]"
	}
	if h.Port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(h.Port)
}

// WithPort returns h with another port.
func (h Host) WithPort(port int) Host {
	h.Port = port
	return h
}

// IsLoopback reports whether h is this machine by its own word: a loopback
// address, localhost, or a name under it. What other names resolve to is seen
// only when they are dialled.
func (h Host) IsLoopback() bool {
	if h.IsIP() {
		return h.IP.IsLoopback()
	}
	return h.Name == "localhost" || strings.HasSuffix(h.Name, ".localhost")
}

// Under reports whether h is other or a name below it, whatever the ports.
func (h Host) Under(other Host) bool {
	if h.IsIP() || other.IsIP() {
		return h.IP == other.IP
	}
	return other.Name != "" && (h.Name == other.Name || strings.HasSuffix(h.Name, "."+other.Name))
}
