// Command battery runs the tests of each case of the threat model.
package main

import (
	"github.com/fairlead/fairlead/deploy/checks/battery"
	"github.com/fairlead/fairlead/deploy/program"
)

func main() {
	program.Main("battery", "Runs the tests of each case of the threat model", battery.Declare)
}
