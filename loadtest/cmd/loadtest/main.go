// Command loadtest loads a fairlead and judges how it holds up.
package main

import (
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest"
)

func main() {
	program.Main("loadtest", "Loads a fairlead and judges how it holds up", loadtest.Declare)
}
