// Command check builds, vets and tests what a change concerns.
package main

import (
	"os"

	"github.com/fairlead/fairlead/deploy/checks/changed"
)

func main() { os.Exit(changed.Run(os.Args[1:], os.Stdout)) }
