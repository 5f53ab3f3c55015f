//go:build !race

package redact_test

const raced = false
