package op

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound01WhoMayReadAnOutcome: of every operation, in a sandbox whoever has
// its capability, and nobody else; in a browser its user, whatever others have.
func TestFound01WhoMayReadAnOutcome(t *testing.T) {
	sandbox := protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1"}
	browser := protocol.CommandTarget{SessionID: "ses_1", ExtensionID: "abc"}
	both := protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1", ExtensionID: "abc"}
	for _, spec := range Specs {
		needs := spec.Needs
		others := slices.DeleteFunc(slices.Clone(protocol.Capabilities), func(c protocol.Capability) bool { return c == needs })
		for _, c := range []struct {
			target protocol.CommandTarget
			reader protocol.UserID
			caps   []protocol.Capability
			want   bool
		}{
			{sandbox, "usr_alice", []protocol.Capability{needs}, true},
			{sandbox, "usr_bob", []protocol.Capability{needs}, true},
			{sandbox, "usr_bob", others, false},
			{sandbox, "usr_alice", others, false}, // they may no longer
			{browser, "usr_alice", nil, true},
			{browser, "usr_bob", protocol.Capabilities, false},
			{both, "usr_bob", protocol.Capabilities, false},
		} {
			has := func(capability protocol.Capability) bool { return slices.Contains(c.caps, capability) }
			if got := MayReadOutcome(spec.Kind, c.target, "usr_alice", c.reader, has); got != c.want {
				t.Errorf("%s at %+v by %s with %v: %v", spec.Kind, c.target, c.reader, c.caps, got)
			}
		}
	}
	all := func(protocol.Capability) bool { return true }
	if MayReadOutcome("sandbox.burn", sandbox, "usr_alice", "usr_alice", all) {
		t.Error("an operation that isn't known has no capability that opens its outcome")
	}
	if MayReadOutcome(KindCDPSend, protocol.CommandTarget{}, "", "", all) {
		t.Error("nobody is not the user of a command that has none")
	}
}
