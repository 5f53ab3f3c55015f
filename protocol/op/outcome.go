package op

import "github.com/fairlead/fairlead/protocol"

// MayReadOutcome reports whether reader may get a command's result and error
// text. Commands in somebody's own browser are theirs alone. Commands in a
// sandbox need the same capabilities as asking for them; has reports the
// reader's in the command's session and terminal.
//
// A browser executes a command that names no sandbox, or an extension.
func MayReadOutcome(kind string, target protocol.CommandTarget, user, reader protocol.UserID, has func(protocol.Capability) bool) bool {
	if target.SandboxID == "" || target.ExtensionID != "" {
		return user != "" && user == reader
	}
	spec, known := Lookup(kind)
	return known && has(spec.Needs)
}
