// Command controlplane runs fairlead's control plane and works on its state.
package main

import "github.com/fairlead/fairlead/deploy/program"

func main() {
	program.Main("controlplane", "Say who may do what, and sign it", func(c *program.Command) {
		serve(c)
		c.Sub("serve", "Run the control plane (what happens without a subcommand)", serve)
		c.Sub("user", "Add, list and remove users, make tokens", users)
		c.Sub("dashboard", "Add, list and remove dashboards and their members", dashboards)
		c.Sub("session", "List sessions", sessions)
		c.Sub("command", "List and show commands, send one", commands)
		c.Sub("env", "Set and unset variables and secrets of sessions", environment)
		c.Sub("approval", "Decide what a sandbox asks for", approvals)
		c.Sub("enrol", "Certify a sandbox's key and write its enrolment", enrol)
		c.Sub("invite", "Let a sandbox enrol by itself, once", invite)
		c.Sub("sandbox", "List and revoke sandboxes", sandboxes)
		c.Sub("relay", "Add, list and remove relays, and change their credentials", relays)
		c.Sub("keys", "List, rotate and revoke the signing keys", keys)
		c.Sub("grant", "List and revoke grants", grants)
		c.Sub("integrations", "List connected accounts and where they are attached", accounts)
		c.Sub("vault", "Make and rotate the keys of the tokens of connected accounts", vaults)
		c.Sub("extension", "Write the browser extension", extensions)
		c.Sub("audit", "Verify the audit logs of sandboxes", audits)
	})
}
