// Command bench measures a whole stack beside the barest thing that could do
// the same: keystroke echo beside a WebSocket wired straight to a PTY, and
// fan-out beside a loop of one write per viewer and chunk. Blocks of both are
// interleaved; a figure is the median of their ratios with a 95 % interval
// (DESIGN §11). It exits with 1 when a bound is missed.
package main

import (
	"flag"
	"os"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == baselineRole {
		exit(serveBaseline())
	}
	bin := flag.String("bin", "bin", "directory with the programs")
	viewers := flag.Int("viewers", 300, "sockets of the fan-out")
	only := flag.String("only", "", "echo or fanout; both when empty")
	flag.Parse()
	exit(measure(*bin, *viewers, *only))
}
