package main

import "testing"

// TestContextWindow: the variable of seed 002 is the flag's default, if it is a
// number of tokens.
func TestContextWindow(t *testing.T) {
	for value, want := range map[string]int{"": 0, "200000": 200_000, " 1000 ": 1000, "-5": 0, "many": 0} {
		got := contextWindow(func(name string) string {
			if name == "CONTEXT_WINDOW" {
				return value
			}
			return "77"
		})
		if got != want {
			t.Errorf("%q: %d", value, got)
		}
	}
}
