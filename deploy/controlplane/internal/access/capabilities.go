package access

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// ofRole is what each role allows.
var ofRole = map[store.Role][]protocol.Capability{
	store.RoleOwner: protocol.Capabilities,
	store.RoleEditor: {
		protocol.CapView, protocol.CapControl, protocol.CapShell, protocol.CapAgent,
		protocol.CapFilesRead, protocol.CapFilesWrite, protocol.CapChat, protocol.CapMCP,
		protocol.CapPlugins, protocol.CapApprove, protocol.CapRecord, protocol.CapSync,
	},
	store.RoleViewer: {protocol.CapView},
}

// Capabilities returns what a member may do, in the order of
// [protocol.Capabilities]: what the role allows, as far as the member's own
// list, separated by spaces, has it too. An empty list narrows nothing.
func Capabilities(role store.Role, list string) []protocol.Capability {
	caps := slices.Clone(ofRole[role])
	if list == "" {
		return caps
	}
	own := strings.Fields(list)
	return slices.DeleteFunc(caps, func(c protocol.Capability) bool { return !slices.Contains(own, string(c)) })
}

// Join returns capabilities as the store keeps them.
func Join(caps []protocol.Capability) string {
	words := make([]string, len(caps))
	for i, c := range caps {
		words[i] = string(c)
	}
	return strings.Join(words, " ")
}
