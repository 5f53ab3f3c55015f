package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/deploy/devstack"
	"github.com/fairlead/fairlead/deploy/program"
)

// run declares the flags and what they start.
func run(c *program.Command) {
	var cfg devstack.Config
	c.String(&cfg.Listen, "listen", "127.0.0.1:8080", "loopback `address` that browsers open")
	c.String(&cfg.TunnelListen, "tunnel-listen", "", "loopback `address` where the first relay takes sandboxes' tunnels (default: a free port)")
	c.Strings(&cfg.SandboxRelays, "sandbox-relays", "`addresses` that sandboxes dial instead of the relays' own, to put something in between")
	c.Bool(&cfg.SandboxesSpread, "sandboxes-spread", false, "each sandbox tries the relays in an order of its own, as sandboxes elsewhere do, and hears of others; otherwise all begin with the first one")
	c.Int(&cfg.Relays, "relays", 1, "`number` of relays")
	c.Int(&cfg.Sandboxes, "sandboxes", 1, "`number` of sandboxes")
	c.Int(&cfg.People, "people", 0, "`number` of members beside alice, bob and carol: p1, p2, …, who may only watch")
	c.Int(&cfg.GrantsPerPerson, "grants-per-person", 0, "`number` of live grants that the control plane lets one person have; 0: its own default")
	c.Int(&cfg.SocketsPerPerson, "sockets-per-person", 0, "`number` of sockets that a relay lets one person have; 0: its own default")
	c.Strings(&cfg.ExtensionIDs, "extension-ids", "`ids` of the browser extensions whose side panels may come to the relays")
	c.String(&cfg.StateDir, "state-dir", "", "`directory` that keeps the stack between starts (default: fairlead/devstack in the user's state directory)")
	c.Bool(&cfg.Temporary, "temporary", false, "workspaces and homes, which lie outside the state directory, are removed at the end; after a kill at the start of another devstack")
	c.String(&cfg.ReadyFile, "ready-file", "", "`file` to write addresses, ids and tokens to when everything runs")
	c.Bool(&cfg.UserEntries, "user-entries", true, "as root, the users of terminals have entries in /etc/passwd while they run")
	c.Bool(&cfg.SyncUnisolated, "sync-unisolated", false, "take people's cookies for the sandboxes' browsers even without root, where every program of a terminal can read them")
	c.Bool(&cfg.AllowPrivileges, "allow-privileges", false, "programs of terminals may gain privileges by what they run, as sudo needs")
	c.String(&cfg.SandboxConfig, "sandbox-config", "", "YAML `file` with further flags of the sandboxes' agents (see sandbox-agent --help); those that the stack sets itself win")
	c.Bool(&cfg.Egress, "egress", false, "terminals go through the egress proxy, which asks before it lets them reach a host that is not on the list")
	c.Strings(&cfg.OutboundHosts, "outbound-hosts", "name=ip[:port] `addresses` of hosts that broker and egress proxy may reach wherever they are, for tests")
	c.String(&cfg.Integrations, "integrations", "", "`file` for the control plane that says how accounts are connected (GitHub, Gmail, …)")
	c.Run(func(ctx context.Context, env *program.Env) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		if cfg.Relays < 1 || cfg.Sandboxes < 1 {
			return fmt.Errorf("--relays and --sandboxes must be at least 1")
		}
		if cfg.People < 0 || cfg.People > devstack.MaxPeople {
			return fmt.Errorf("--people must be from 0 to %d", devstack.MaxPeople)
		}
		if cfg.GrantsPerPerson < 0 || cfg.SocketsPerPerson < 0 {
			return fmt.Errorf("--grants-per-person and --sockets-per-person must not be negative")
		}
		if cfg.StateDir == "" {
			if cfg.StateDir, err = defaultStateDir(); err != nil {
				return err
			}
		}
		cfg.Bin, cfg.Revision, cfg.Out = filepath.Dir(self), env.Revision, env.Stdout
		return devstack.Run(ctx, cfg)
	})
}

// defaultStateDir follows the XDG base directory specification.
func defaultStateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "fairlead", "devstack"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory, so --state-dir is needed: %w", err)
	}
	return filepath.Join(home, ".local", "state", "fairlead", "devstack"), nil
}
