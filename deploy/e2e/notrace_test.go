//go:build !otel

package e2e

// tags are what the programs are built with.
var tags []string
