//go:build !race

package e2e

const slowdown = 1

var buildFlags []string

func raced(string) bool { return false }
