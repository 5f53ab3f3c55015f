package main

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay"
)

// flags are a relay's configuration as it is typed.
type flags struct {
	relay.Config
	id        string
	secret    string
	readyFile string
}

// declare adds the relay's flags to c. The Config is complete once c runs.
func declare(c *program.Command) *flags {
	f := &flags{}
	c.String(&f.id, "relay-id", "", "`id` of this relay at the control plane (default: the one that its credential is for)")
	c.String(&f.Listen, "listen", "127.0.0.1:8080", "`address` of the public listener; plain HTTP on loopback only")
	c.String(&f.Cert, "cert", "", "PEM `file` with the public listener's certificate")
	c.String(&f.Key, "key", "", "PEM `file` with the certificate's key")
	c.Bool(&f.BehindProxy, "behind-proxy", false, "a balancer in front speaks TLS; allows plain HTTP beyond loopback")
	c.Strings(&f.PublicOrigins, "public-origins", "`origins` of this relay, then of all others (default: the loopback ones)")
	c.Strings(&f.ExtensionIDs, "extension-ids", "`ids` of the browser extensions whose side panels may come (default: none, and no routes for them)")
	c.String(&f.TunnelListen, "tunnel-listen", "127.0.0.1:4433", "UDP `address` that agents dial")
	c.String(&f.TunnelWebSocketListen, "tunnel-websocket-listen", "", "TCP `address` that agents dial when UDP doesn't get through, or off (default: the port of --tunnel-listen)")
	c.Float(&f.RegistrationsPerSecond, "registrations-per-second", 200, "`number` of agents that may register per second")
	c.Int(&f.SocketsPerPerson, "sockets-per-person", 256, "`number` of terminal sockets that one person may have, and of chat sockets")
	c.Bool(&f.NoIOURing, "no-io-uring", false, "send to each viewer by a system call of its own, rather than to many by io_uring")
	c.Int(&f.SyncMaxBytes, "sync-max-bytes", relay.DefaultSyncMaxBytes, "`size` of what a laptop may push of its browser at once")
	c.String(&f.TunnelCert, "tunnel-cert", "", "PEM `file` with the certificate that agents verify")
	c.String(&f.TunnelKey, "tunnel-key", "", "PEM `file` with that certificate's key")
	c.String(&f.AdminListen, "admin-listen", "127.0.0.1:9090", "`address` for health, metrics and profiles")
	c.String(&f.PreviewListen, "preview-listen", "", "`address` of the listener for previews, with the public one's certificate (default: no previews)")
	c.String(&f.PreviewOrigin, "preview-origin", "", "`origin` below whose host each preview has a name of its own (default on loopback: preview.localhost)")
	c.String(&f.ControlPlaneURL, "control-plane-url", "", "`URL` of the control plane's REST listener")
	c.String(&f.ControlPlaneCA, "control-plane-ca", "", "PEM `file` with who vouches for the control plane at an https URL (default: the system's)")
	c.String(&f.ControlPlaneConnect, "control-plane-connect", "", "`host:port` of the control plane's TLS listener, where connect streams go")
	c.String(&f.AdvertiseURL, "advertise-url", "", "`URL` at which the control plane finds this relay (default: --listen if it is loopback, or all addresses of the control plane's machine; else the first of --public-origins)")
	c.String(&f.AdvertiseTunnel, "advertise-tunnel", "", "`host:port` at which agents find it (default: --tunnel-listen, with the public origin's name if that is all addresses)")
	c.Secret(&f.Credential, "credential", "the relay's credential at the control plane")
	c.Secret(&f.secret, "relay-secret", "the secret that the keys of QUIC resets and tokens and of the web client's cookies are derived from; shared by restarts of this relay, and by all relays whose cookies are to be good at each other")
	c.String(&f.readyFile, "ready-file", "", "`file` to write the addresses to once the relay takes traffic")
	c.Duration(&f.KeysMaxAge, "keys-max-age", time.Hour, "how long the control plane's keys are believed while it can't be reached, a `time`")
	c.Duration(&f.DrainTimeout, "drain-timeout", 10*time.Second, "the `time` that a drain takes at most: sandboxes and viewers leave, commands end")
	c.Require("tunnel-cert", "tunnel-key", "control-plane-url", "control-plane-connect", "credential")
	return f
}

func (f *flags) config(env *program.Env) relay.Config {
	cfg := f.Config
	cfg.Logger, cfg.Revision = env.Logger, env.Revision
	cfg.RelayID, cfg.Secret = protocol.RelayID(f.id), []byte(f.secret)
	if f.readyFile != "" {
		cfg.OnReady = func(a relay.Addresses) error {
			data, err := json.Marshal(a)
			if err != nil {
				return err
			}
			return program.ReplaceFile(f.readyFile, data, 0o600)
		}
	}
	return cfg
}
