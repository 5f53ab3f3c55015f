// Command devstack runs a whole fairlead on this machine.
package main

import "github.com/fairlead/fairlead/deploy/program"

func main() {
	program.Main("devstack", "Runs a whole fairlead on this machine: control plane, relay, sandbox, three users", run)
}
