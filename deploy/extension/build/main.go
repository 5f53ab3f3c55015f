// Command build bundles the extension's parts from web/ into dist/, which package
// extension embeds. Run it from the repository's root.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("dir", "deploy/extension", "the extension's folder")
	console := flag.String("console", "relay/internal/console/web", "the console's sources, whose packages and building blocks it uses")
	flag.Parse()
	if err := build(*dir, *console); err != nil {
		fmt.Fprintf(os.Stderr, "build: error: %v\n", err)
		os.Exit(1)
	}
}
