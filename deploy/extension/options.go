package extension

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// Options say what an extension is made of, and for whom.
type Options struct {
	Parts   []string // some of [Parts]; none: those that need not be named
	Origins []string // the relays, as "https://host[:port]", the first one to begin with
	Key     string   // like [DefaultKey], which empty means
	Version string   // of the manifest; empty: 1.0.0

	// Of the part pages.
	JWKS   string          // address at which the control plane publishes its keys
	Keys   json.RawMessage // a JWK set for an extension without that address
	Tabs   string          // [TabsShared], which empty means, or [TabsAll]
	Except []string        // origins that no command touches, nor what is below: of previews

	// Of the part sync.
	ControlPlane string // the control plane's own origin; empty: JWKS's
}

// Which tabs the part pages may touch.
const (
	TabsShared = "shared" // those that the person has shared with the command's session
	TabsAll    = "all"    // all on http and https: for managed machines
)

// checkOrigins returns the origins of the relays.
func checkOrigins(list []string) ([]string, error) {
	origins, err := distinctOrigins(list)
	if err == nil && len(origins) == 0 {
		err = protocol.Errorf(protocol.KindInvalid, "an extension needs the origin of a relay")
	}
	return origins, err
}

// distinctOrigins returns the origins without repetitions. They become part of a
// policy and of patterns, so nothing else may stand in them.
func distinctOrigins(list []string) ([]string, error) {
	var origins []string
	for _, origin := range list {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.Scheme+"://"+u.Host != origin || strings.ContainsAny(u.Host, "*;, '\"") {
			return nil, protocol.Errorf(protocol.KindInvalid, "%q is not an origin such as https://relay.example", origin)
		}
		if strings.HasPrefix(u.Host, "[") {
			return nil, protocol.Errorf(protocol.KindInvalid, "%q: a Content-Security-Policy can't name an IPv6 address, so give it a name", origin)
		}
		if !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	return origins, nil
}
