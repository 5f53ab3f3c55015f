// Command build bundles the console's page from web/ into dist/, which package
// console embeds. Run it from the repository's root.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("dir", "relay/internal/console", "the console's folder")
	flag.Parse()
	if err := build(*dir); err != nil {
		fmt.Fprintf(os.Stderr, "build: error: %v\n", err)
		os.Exit(1)
	}
}
