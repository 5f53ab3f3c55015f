//go:build race

package e2e

import "strings"

// slowdown is how many times slower programs are, where a test's load must be
// one that they can carry.
const slowdown = 5

var buildFlags = []string{"-race", "-gcflags=modernc.org/...=-race=false"} // as the Makefile's RACE

func raced(log string) bool { return strings.Contains(log, "WARNING: DATA RACE") }
