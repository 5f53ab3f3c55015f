// Command printer prints the output that a seed stands for to its terminal, as
// it is told through a Unix socket: printer SOCKET SEED.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/fairlead/fairlead/deploy/e2e/internal/source"
)

func main() {
	seed, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err == nil {
		var conn net.Conn
		if conn, err = net.Dial("unix", os.Args[1]); err == nil {
			err = source.New(seed).Print(os.Stdout, conn)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "printer:", err)
		os.Exit(1)
	}
}
