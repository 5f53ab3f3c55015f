package protocol

import (
	"slices"
	"testing"
)

// TestFound01WhoMayReadAnOutcome: of every operation, in a sandbox whoever has
// its capability, and nobody else; in a browser its user, whatever others have.
func TestFound01WhoMayReadAnOutcome(t *testing.T) {
	sandbox := CommandTarget{SandboxID: "sb_1", SessionID: "ses_1"}
	browser := CommandTarget{SessionID: "ses_1", ExtensionID: "abc"}
	both := CommandTarget{SandboxID: "sb_1", SessionID: "ses_1", ExtensionID: "abc"}
	for op, needs := range OperationCapability {
		others := slices.DeleteFunc(slices.Clone(Capabilities), func(c Capability) bool { return c == needs })
		for _, c := range []struct {
			target CommandTarget
			reader UserID
			caps   []Capability
			want   bool
		}{
			{sandbox, "usr_alice", []Capability{needs}, true},
			{sandbox, "usr_bob", []Capability{needs}, true},
			{sandbox, "usr_bob", others, false},
			{sandbox, "usr_alice", others, false}, // they may no longer
			{browser, "usr_alice", nil, true},
			{browser, "usr_bob", Capabilities, false},
			{both, "usr_bob", Capabilities, false},
		} {
			has := func(capability Capability) bool { return slices.Contains(c.caps, capability) }
			if got := MayReadOutcome(op, c.target, "usr_alice", c.reader, has); got != c.want {
				t.Errorf("%s at %+v by %s with %v: %v", op, c.target, c.reader, c.caps, got)
			}
		}
	}
	all := func(Capability) bool { return true }
	if MayReadOutcome("sandbox.burn", sandbox, "usr_alice", "usr_alice", all) {
		t.Error("an operation that isn't known has no capability that opens its outcome")
	}
	if MayReadOutcome(OpCDPSend, CommandTarget{}, "", "", all) {
		t.Error("nobody is not the user of a command that has none")
	}
}
