package pluginsocket

import (
	"strings"
	"testing"
)

// TestValidName: names are the seed's, and bounded.
func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "My_plug-in9": true, strings.Repeat("a", MaxName): true,
		"": false, strings.Repeat("a", MaxName+1): false, "..": false, "../x": false, "%2e": false, "a b": false, "é": false, "a\x00": false, "a/b": false, "$(id)": false,
	} {
		if ValidName(name) != want {
			t.Errorf("%q is valid: %v", name, !want)
		}
	}
}
