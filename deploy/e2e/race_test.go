//go:build race

package e2e

import "strings"

var buildFlags = []string{"-race"}

func raced(log string) bool { return strings.Contains(log, "WARNING: DATA RACE") }
