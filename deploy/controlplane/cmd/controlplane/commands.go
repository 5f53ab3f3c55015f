package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const stateUsage = "`directory` of signing keys and database"

func serve(c *program.Command) {
	var cfg controlplane.Config
	var readyFile string
	c.String(&cfg.StateDir, "state-dir", "", stateUsage+"; made if it doesn't exist")
	c.String(&cfg.Listen, "listen", "127.0.0.1:8081", "loopback `address` for plain HTTP")
	c.String(&cfg.TLSListen, "tls-listen", "", "`address` for agents over TLS; empty: none")
	c.String(&cfg.TLSCert, "tls-cert", "", "certificate `file` of --tls-listen, PEM")
	c.String(&cfg.TLSKey, "tls-key", "", "key `file` of --tls-listen, PEM")
	c.String(&cfg.DevSeed, "dev-seed", "", "`file` with development users, loaded at each start")
	c.String(&readyFile, "ready-file", "", "`file` to write the addresses to, once they accept connections")
	c.Require("state-dir")
	c.Run(func(ctx context.Context, env *program.Env) error {
		cfg.Revision, cfg.Logger = env.Revision, env.Logger
		server, err := controlplane.New(ctx, cfg)
		if err != nil {
			return err
		}
		if readyFile != "" {
			if err := writeReady(readyFile, env.Revision, server); err != nil {
				return err
			}
		}
		return server.Run(ctx)
	})
}

func writeReady(file, revision string, server *controlplane.Server) error {
	data, err := json.Marshal(struct {
		Revision string `json:"revision"`
		PID      int    `json:"pid"`
		URL      string `json:"url"`
		TLS      string `json:"tls,omitempty"` // "host:port"
	}{revision, os.Getpid(), server.URL(), server.TLSAddr()})
	if err != nil {
		return err
	}
	return program.ReplaceFile(file, append(data, '\n'), 0o600)
}

func enrol(c *program.Command) {
	var cfg controlplane.EnrolConfig
	var sandbox string
	c.String(&cfg.StateDir, "state-dir", "", stateUsage)
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox")
	c.String(&cfg.DeviceKey, "device-key", "", "`file` with the sandbox's public key, a JWK")
	c.String(&cfg.CA, "ca", "", "`file` with the control plane's CA certificates, PEM")
	c.String(&cfg.ServerName, "server-name", "", "`name` in the control plane's certificate")
	c.Strings(&cfg.Relays, "relay", "host:port of the relays' tunnels")
	c.String(&cfg.RelayCA, "relay-ca", "", "`file` with the relays' CA certificates, PEM")
	c.Duration(&cfg.ValidFor, "valid-for", controlplane.DefaultEnrolmentLife, "how long the certificate lasts")
	c.Bool(&cfg.Replace, "replace", false, "take another device key than the sandbox has")
	c.String(&cfg.Out, "out", "", "`file` to write, for its owner alone")
	c.Require("state-dir", "sandbox", "device-key", "ca", "server-name", "relay", "relay-ca", "out")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		cfg.Sandbox = protocol.SandboxID(sandbox)
		err := controlplane.Enrol(ctx, cfg)
		if err != nil && protocol.KindOf(err) == protocol.KindConflict {
			return program.Hint(err, "--replace takes the new key; the old one stays valid until its certificate expires")
		}
		return err
	})
}

func listKeys(c *program.Command) {
	var stateDir string
	c.String(&stateDir, "state-dir", "", stateUsage)
	c.Require("state-dir")
	c.Run(func(_ context.Context, env *program.Env) error {
		keys, err := controlplane.ListKeys(stateDir)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "KID\tMADE\tUSE\tFILE")
		for i, key := range keys {
			use := "verify"
			if i == len(keys)-1 {
				use = "sign"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", key.Signer.Kid(), key.Made.Format(time.RFC3339), use, key.File)
		}
		return w.Flush()
	})
}
