package approval

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// TestPatternOf: the rule of a decision covers what was decided about.
func TestPatternOf(t *testing.T) {
	for _, tt := range []struct {
		host string
		port int
		want string
	}{
		{"a.example", 443, "a.example"}, {"a.example", 80, "a.example"}, {"a.example", 8443, "a.example:8443"},
		{"192.0.2.1", 443, "192.0.2.1"}, {"2001:db8::1", 443, "2001:db8::1"}, {"2001:db8::1", 22, "[2001:db8::1]:22"},
	} {
		got := patternOf(protocol.Approval{Host: tt.host, Port: tt.port})
		if _, err := hostname.ParsePattern(got); got != tt.want || err != nil {
			t.Errorf("%s port %d: %s, %v", tt.host, tt.port, got, err)
		}
	}
}
