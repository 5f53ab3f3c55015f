package extension

import (
	"net/url"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// configuration returns config.json: what the scripts have to know, those of some
// parts more than the others.
func configuration(opts *Options, parts []part) (map[string]any, error) {
	config := map[string]any{"origins": opts.Origins}
	for _, p := range parts {
		var err error
		if p.pages {
			err = configurePages(opts, config)
		}
		if p.sites {
			err = configureSync(opts, config)
		}
		if err != nil {
			return nil, err
		}
	}
	return config, nil
}

func configurePages(opts *Options, config map[string]any) error {
	if err := checkKeys(*opts); err != nil {
		return err
	}
	except, err := distinctOrigins(opts.Except)
	if err != nil {
		return err
	}
	switch opts.Tabs {
	case "":
		opts.Tabs = TabsShared
	case TabsShared, TabsAll:
	default:
		return protocol.Errorf(protocol.KindInvalid, "tabs %q: want %s or %s", opts.Tabs, TabsShared, TabsAll)
	}
	config["tabs"], config["jwks"], config["keys"] = opts.Tabs, opts.JWKS, opts.Keys
	config["except"] = append([]string{}, except...)
	return nil
}

// checkKeys checks where the keys come from that commands are signed with: the
// control plane itself. A relay could put its own in their place.
func checkKeys(opts Options) error {
	if opts.JWKS == "" && len(opts.Keys) == 0 {
		return protocol.Errorf(protocol.KindInvalid, "the part pages needs the control plane's keys: the address at which it publishes them, or the keys themselves")
	}
	if opts.JWKS != "" && len(opts.Keys) > 0 {
		return protocol.Errorf(protocol.KindInvalid, "keys are either fetched or built in, not both")
	}
	if opts.JWKS == "" {
		set, err := jws.ParseKeySet(opts.Keys)
		if err == nil && set.Len() == 0 {
			err = protocol.Errorf(protocol.KindInvalid, "key set: no usable key")
		}
		return err
	}
	u, err := url.Parse(opts.JWKS)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.String() != opts.JWKS {
		return protocol.Errorf(protocol.KindInvalid, "%q is not the address of a JWK set", opts.JWKS)
	}
	origin := u.Scheme + "://" + u.Host
	if _, err := distinctOrigins([]string{origin}); err != nil {
		return err
	}
	if slices.Contains(opts.Origins, origin) {
		return protocol.Errorf(protocol.KindInvalid, "%s is a relay: keys come from the control plane's own address, as at a relay they are the relay's word", origin)
	}
	return nil
}
