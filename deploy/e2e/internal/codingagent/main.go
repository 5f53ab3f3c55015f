// Command codingagent is a stand-in for the program that its first argument names.
package main

import (
	"os"

	"github.com/fairlead/fairlead/deploy/program/standin"
)

func main() { os.Exit(standin.Main(os.Args[1:])) }
