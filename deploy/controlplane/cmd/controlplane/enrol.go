package main

import (
	"context"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func reachFlags(c *program.Command, r *controlplane.Reach) {
	c.String(&r.CA, "ca", "", "`file` with the control plane's CA certificates, PEM")
	c.String(&r.ServerName, "server-name", "", "`name` in the control plane's certificate")
	c.Strings(&r.Relays, "relay", "host:port of the relays' tunnels")
	c.String(&r.RelayCA, "relay-ca", "", "`file` with the relays' CA certificates, PEM")
	c.Require("ca", "server-name", "relay", "relay-ca")
}

func enrol(c *program.Command) {
	var cfg controlplane.EnrolConfig
	var at place
	var sandbox string
	at.flags(c)
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox")
	c.String(&cfg.DeviceKey, "device-key", "", "`file` with the sandbox's public key, a JWK")
	c.Duration(&cfg.ValidFor, "valid-for", controlplane.DefaultEnrolmentLife, "how long the certificate lasts")
	c.Bool(&cfg.Replace, "replace", false, "take another device key than the sandbox has")
	c.String(&cfg.Out, "out", "", "`file` to write, for its owner alone")
	c.Require("state-dir", "sandbox", "device-key")
	reachFlags(c, &cfg.Reach)
	c.Require("out")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		cfg.StateDir, cfg.Database, cfg.Sandbox = at.stateDir, at.database, protocol.SandboxID(sandbox)
		err := controlplane.Enrol(ctx, cfg)
		if err != nil && protocol.KindOf(err) == protocol.KindConflict {
			return program.Hint(err, "--replace takes the new key; the old one stays valid until its certificate expires, or until \"sandbox revoke\"")
		}
		if err != nil && protocol.KindOf(err) == protocol.KindTooMany {
			return program.Hint(err, "a shorter --valid-for leaves fewer behind; sandbox revoke voids them")
		}
		return err
	})
}

func invite(c *program.Command) {
	var cfg controlplane.InviteConfig
	var at place
	var sandbox string
	at.flags(c)
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox")
	c.String(&cfg.Dashboard, "dashboard", "", "`id` of the dashboard whose sandbox it is to be")
	c.Duration(&cfg.TTL, "ttl", controlplane.DefaultInvitationLife, "how long the invitation waits to be used")
	c.Bool(&cfg.Replace, "replace", false, "let it take another device key than the sandbox has")
	c.String(&cfg.Out, "out", "", "`file` to write, for its owner alone")
	c.Require("state-dir", "sandbox")
	reachFlags(c, &cfg.Reach)
	c.Require("out")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		cfg.StateDir, cfg.Database, cfg.Sandbox = at.stateDir, at.database, protocol.SandboxID(sandbox)
		return controlplane.Invite(ctx, cfg)
	})
}
