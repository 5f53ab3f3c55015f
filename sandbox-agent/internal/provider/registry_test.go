package provider

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestContinue: each program resumes the session in a terminal by its own
// arguments, and by none that speaks a protocol.
func TestContinue(t *testing.T) {
	const native = "0a1b-2c"
	want := map[string][]string{
		"claude":   {"claude", "--resume", native},
		"codex":    {"codex", "resume", native},
		"gemini":   {"gemini", "--resume", native},
		"opencode": {"opencode", "--session", native},
		"cursor":   {"cursor-agent", "--resume=" + native},
	}
	for _, p := range All(Options{}) {
		command, err := Continue(p, native, "/w")
		if got := append([]string{command.Program}, command.Args...); err != nil || !slices.Equal(got, want[p.Name()]) {
			t.Errorf("%s: %q, %v", p.Name(), got, err)
		}
		if command.Install == "" {
			t.Errorf("%s: nobody is told how to install it", p.Name())
		}
		for _, bad := range []string{"", "-c", "--dangerously-skip-permissions", "a b", "a;b", "a\x00b", "$(x)", "é"} {
			if _, err := Continue(p, bad, "/w"); protocol.KindOf(err) != protocol.KindInvalid {
				t.Errorf("%s with %q: %v", p.Name(), bad, err)
			}
		}
	}
}
