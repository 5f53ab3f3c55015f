// Package source is the program for a laptop whose browser's cookies a sandbox's
// Chromium is to have: sealed sync's sender (seed 004).
//
// Only the laptop and the sandbox can read what is sent. The key comes from a pairing
// that both make by way of the control plane, never by way of a relay.
package source

import "github.com/fairlead/fairlead/deploy/program"

// statusUsage is the exit status for a command line that isn't understood.
const statusUsage = 2

const about = `Keeps the browser of a sandbox signed in where yours is. What it sends only that
sandbox can read.

  fairlead-source login https://control.example.com
  fairlead-source pair --site github.com
  fairlead-source push --watch

Nothing is sent but the sites that you name. Add some with "accounts on", or all of
them with "pair --all". "push --dry-run" says what would be sent.

Every command takes --json, and exits with 0, with 1 for an error or a failed check
of "doctor", or with 2 when it was called wrongly.`

// Declare declares the program.
func Declare(c *program.Command) {
	c.Describe(about)
	c.UsageStatus(statusUsage)
	c.UsageInJSON("json")
	c.Sub("login", "Say which control plane and which sandbox", declareLogin)
	c.Sub("pair", "Make a key that this computer and the sandbox have", declarePair)
	c.Sub("push", "Send the cookies of the sites that you have named", declarePush)
	c.Sub("accounts", "Name the sites whose cookies are sent", declareAccounts)
	c.Sub("status", "Say what is paired, and what was sent", declareStatus)
	c.Sub("doctor", "Look for what keeps it from working", declareDoctor)
	c.Sub("unpair", "End the pairing, and take its cookies out of the sandbox", declareUnpair)
}
