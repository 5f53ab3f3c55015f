//go:build !race

package e2e

var buildFlags []string

func raced(string) bool { return false }
