// Command fairlead-source keeps a sandbox's browser signed in where this computer's is.
package main

import (
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source"
)

func main() {
	program.Main("fairlead-source", "Keeps a sandbox's browser signed in where this computer's is", source.Declare)
}
