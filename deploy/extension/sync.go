package extension

import (
	"net/netip"
	"net/url"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// configureSync says where pairings are made: at the control plane itself. A relay
// that carried one could put a key of its own in the sandbox's place.
func configureSync(opts *Options, config map[string]any) error {
	if opts.ControlPlane == "" {
		opts.ControlPlane = originOf(opts.JWKS)
	}
	if opts.ControlPlane == "" {
		return protocol.Errorf(protocol.KindInvalid, "the part sync needs the control plane's own address: pairings are made there, past every relay")
	}
	if _, err := distinctOrigins([]string{opts.ControlPlane}); err != nil {
		return err
	}
	if slices.Contains(opts.Origins, opts.ControlPlane) {
		return protocol.Errorf(protocol.KindInvalid, "%s is a relay: pairings are made at the control plane's own address, as a relay could put a key of its own in the sandbox's place", opts.ControlPlane)
	}
	if u, err := url.Parse(opts.ControlPlane); err != nil || u.Scheme != "https" && !loopback(u.Hostname()) {
		return protocol.Errorf(protocol.KindInvalid, "%s: the control plane's address needs https:// (people's tokens travel to it)", opts.ControlPlane)
	}
	config["controlPlane"] = opts.ControlPlane
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// originOf is the origin of an address, empty for none.
func originOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return ""
}

// controlHosts are the control plane's origins, where keys come from and where
// pairings are made: one, where both are said, most often.
func controlHosts(opts Options) (hosts []string) {
	for _, origin := range []string{originOf(opts.JWKS), opts.ControlPlane} {
		if origin != "" && !slices.Contains(hosts, origin) {
			hosts = append(hosts, origin)
		}
	}
	return hosts
}
