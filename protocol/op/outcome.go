package op

import "github.com/fairlead/fairlead/protocol"

// MayReadOutcome reports whether reader may have the result of a command and
// the text of its error. What was done in somebody's own browser is theirs
// alone; what was done in a sandbox is for who may have it done there: has says
// which capabilities the reader has in the command's session and terminal.
//
// A command that names no sandbox, or names an extension, is executed by a
// browser.
func MayReadOutcome(kind string, target protocol.CommandTarget, user, reader protocol.UserID, has func(protocol.Capability) bool) bool {
	if target.SandboxID == "" || target.ExtensionID != "" {
		return user != "" && user == reader
	}
	spec, known := Lookup(kind)
	return known && has(spec.Needs)
}
