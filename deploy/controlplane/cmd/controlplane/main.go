// Command controlplane runs fairlead's control plane and enrols sandboxes.
package main

import "github.com/fairlead/fairlead/deploy/program"

func main() {
	program.Main("controlplane", "Say who may do what, and sign it", func(c *program.Command) {
		serve(c)
		c.Sub("serve", "Run the control plane (what happens without a subcommand)", serve)
		c.Sub("enrol", "Certify a sandbox's key and write its enrolment", enrol)
		c.Sub("keys", "Look at the signing keys", func(c *program.Command) {
			c.Sub("list", "List the signing keys, the one that signs last", listKeys)
		})
	})
}
