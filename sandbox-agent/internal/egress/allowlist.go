package egress

import (
	_ "embed" // for allowlist.txt
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

//go:embed allowlist.txt
var allowlistText string

// webPorts are allowed by a rule without a port: allowing a web site doesn't
// allow every service of its machine.
var webPorts = []int{80, 443}

// An allowlist holds the rules shared by all sessions.
type allowlist struct {
	categories []protocol.EgressCategory
	exact      map[hostname.Pattern]bool
	wildcards  []hostname.Pattern
}

// defaults is the built-in allowlist.
var defaults = sync.OnceValues(func() (*allowlist, error) { return parseAllowlist(allowlistText) })

// parseAllowlist reads a text in allowlist.txt's own format.
func parseAllowlist(text string) (*allowlist, error) {
	a := &allowlist{exact: map[hostname.Pattern]bool{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			a.categories = append(a.categories, protocol.EgressCategory{Name: strings.TrimSuffix(name, "]")})
			continue
		}
		pattern, err := hostname.ParsePattern(line)
		if err != nil {
			return nil, fmt.Errorf("egress: allowlist, line %d: %w", number, err)
		}
		if len(a.categories) == 0 {
			return nil, fmt.Errorf("egress: allowlist, line %d: no category", number)
		}
		category := &a.categories[len(a.categories)-1]
		category.Patterns = append(category.Patterns, pattern.String())
		if pattern.Wildcard() {
			a.wildcards = append(a.wildcards, pattern)
		} else {
			a.exact[pattern] = true
		}
	}
	return a, nil
}

// allows reports whether the list allows host at its port.
func (a *allowlist) allows(host hostname.Host) bool {
	if a.exact[hostname.Exact(host)] {
		return true
	}
	if a.exact[hostname.Exact(host.WithPort(0))] && slices.Contains(webPorts, host.Port) {
		return true
	}
	return slices.ContainsFunc(a.wildcards, func(p hostname.Pattern) bool { return allows(p, host) })
}

// allows reports whether an allowing pattern covers host.
func allows(p hostname.Pattern, host hostname.Host) bool {
	return p.Match(host) && (p.Port() != 0 || slices.Contains(webPorts, host.Port))
}
