package hostname

import (
	"fmt"
	"strings"
)

// A Pattern stands for one host, or for all names below one: "example.com",
// "*.example.com", "192.0.2.1", each with or without ":port". The last label
// of an asterisk's domain is never alone: "*.com" is refused. Patterns are
// equal (==) exactly when they match the same hosts; the zero Pattern matches
// none.
type Pattern struct {
	host     Host // the host, or the domain under the asterisk
	wildcard bool
}

// ParsePattern returns the pattern of a text, in any spelling of its host.
func ParsePattern(text string) (Pattern, error) {
	domain, wildcard := strings.CutPrefix(text, "*.")
	h, err := parsePatternHost(domain)
	if err != nil {
		return Pattern{}, err
	}
	if wildcard && h.IsIP() {
		return Pattern{}, fmt.Errorf("%w: an asterisk before an address", ErrName)
	}
	if wildcard && !strings.Contains(h.Name, ".") {
		return Pattern{}, fmt.Errorf("%w: an asterisk needs a domain of two labels at least", ErrName)
	}
	return Pattern{h, wildcard}, nil
}

func parsePatternHost(text string) (Host, error) {
	host, port, err := split(text)
	if err != nil {
		return Host{}, err
	}
	h, err := parseHost(host)
	if err != nil || port == "" {
		return h, err
	}
	h.Port, err = ParsePort(port)
	return h, err
}

// Exact returns the pattern that stands for h alone, at its port if it has
// one.
func Exact(h Host) Pattern { return Pattern{host: h} }

// Port returns the port of the pattern, 0 when it has none and matches all.
func (p Pattern) Port() int { return p.host.Port }

// Wildcard reports whether p stands for the names below a domain.
func (p Pattern) Wildcard() bool { return p.wildcard }

// Base returns the host of p, or the domain under its asterisk, without the
// port.
func (p Pattern) Base() Host { return p.host.WithPort(0) }

// String returns the canonical form of p. [ParsePattern] reads it back.
func (p Pattern) String() string {
	if p.wildcard {
		return "*." + p.host.String()
	}
	return p.host.String()
}

// Match reports whether p stands for h. "*.example.com" stands for all names
// below example.com, at any depth, and not for example.com itself.
func (p Pattern) Match(h Host) bool {
	if !p.matchPort(h) {
		return false
	}
	if p.wildcard {
		return !h.IsIP() && strings.HasSuffix(h.Name, "."+p.host.Name)
	}
	return p.host != Host{} && h.WithPort(0) == p.Base()
}

// MatchBelow reports whether p stands for h or for a domain above it. What
// denies a host denies what is below that host too.
func (p Pattern) MatchBelow(h Host) bool {
	if p.wildcard {
		return p.Match(h)
	}
	return p.matchPort(h) && p.host != Host{} && h.Under(p.host)
}

func (p Pattern) matchPort(h Host) bool { return p.host.Port == 0 || p.host.Port == h.Port }
