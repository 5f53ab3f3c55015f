// Command bench measures a whole stack beside the barest thing that could do
// the same: keystroke echo beside a WebSocket wired straight to a PTY, and
// fan-out beside a loop of one write per viewer and chunk. Blocks of both are
// interleaved; a figure is the median of their ratios with a 95 % interval
// (DESIGN §11). What has no baseline, memory and the way back after a relay's
// death, is measured as it is. It exits with 1 when a bound is missed.
package main

import (
	"flag"
	"os"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == baselineRole {
		exit(serveBaseline())
	}
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory with the programs")
	flag.IntVar(&o.viewers, "viewers", 1000, "sockets of fanout and rate")
	flag.IntVar(&o.kills, "kills", 20, "times a relay is killed by restart and standby")
	flag.StringVar(&o.only, "only", "", "measure these only, separated by commas: "+names())
	flag.Parse()
	exit(measure(o))
}
