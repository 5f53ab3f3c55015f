package main

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func reachFlags(c *program.Command, r *fleet.Reach) {
	c.String(&r.CA, "ca", "", "`file` with the control plane's CA certificates, PEM")
	c.String(&r.ServerName, "server-name", "", "`name` in the control plane's certificate")
	c.Strings(&r.Relays, "relay", "host:port of the relays' tunnels")
	c.String(&r.RelayCA, "relay-ca", "", "`file` with the relays' CA certificates, PEM")
}

func enrol(c *program.Command) {
	var cfg fleet.EnrolConfig
	var at location
	var sandbox string
	at.flags(c)
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox")
	c.String(&cfg.DeviceKey, "device-key", "", "`file` with the sandbox's public key, a JWK")
	c.Duration(&cfg.ValidFor, "valid-for", fleet.DefaultEnrolmentLife, "how long the certificate lasts")
	c.Bool(&cfg.Replace, "replace", false, "take another device key than the sandbox has")
	c.String(&cfg.Out, "out", "", "`file` to write, for its owner alone")
	c.Require("state-dir", "sandbox", "device-key")
	reachFlags(c, &cfg.Reach)
	c.Require("ca", "server-name", "relay", "relay-ca", "out")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		cfg.StateDir, cfg.Database, cfg.Sandbox = at.StateDir, at.Database, protocol.SandboxID(sandbox)
		err := fleet.Enrol(ctx, cfg)
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
	var cfg fleet.InviteConfig
	var at location
	var sandbox, owner string
	at.flags(c)
	c.Describe(`Let a sandbox enrol by itself, once, with the invitation in the file --out; or
--count new sandboxes, whose invitations are one on each line of it.

Where sandboxes find the control plane and the relays (--ca, --server-name,
--relay, --relay-ca) needn't be said again: without any of these they are told
what the last one was.`)
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox")
	c.Int(&cfg.Count, "count", 0, "invite so many new sandboxes, instead of --sandbox")
	c.String(&cfg.Dashboard, "dashboard", "", "`id` or name of the dashboard whose sandbox it is to be")
	c.String(&owner, "owner", "", "with --count: make a dashboard for each sandbox, for the user with this `id`, address or name")
	c.Duration(&cfg.TTL, "ttl", fleet.DefaultInvitationLife, "how long the invitation waits to be used")
	c.Bool(&cfg.Replace, "replace", false, "let it take another device key than the sandbox has")
	c.String(&cfg.Out, "out", "", "`file` to write, for its owner alone")
	reachFlags(c, &cfg.Reach)
	c.Require("state-dir", "out")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		cfg.StateDir, cfg.Database = at.StateDir, at.Database
		if owner != "" || cfg.Dashboard != "" {
			if err := at.use(ctx, func(st *store.Store) error {
				return find(ctx, st, aUser(&owner), aDashboard(&cfg.Dashboard))
			}); err != nil {
				return err
			}
		}
		cfg.Sandbox, cfg.Owner = protocol.SandboxID(sandbox), protocol.UserID(owner)
		if sandbox == "" && cfg.Count == 0 {
			return errors.New("--sandbox or --count is required")
		}
		return fleet.Invite(ctx, cfg)
	})
}
