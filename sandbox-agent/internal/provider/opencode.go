package provider

import (
	"cmp"

	"github.com/fairlead/fairlead/protocol"
)

// opencode is opencode (1.18.33), by the Agent Client Protocol.
//
// opencode keeps sessions in the database ~/.local/share/opencode/opencode.db:
// tables message (id, session_id, data) and part (id, message_id, data). An event
// of a text has the id of its message, one of reasoning that of its part, one of
// a tool the part's callID, one of a tool's result that and "_result": see
// [OpencodeTextID].
type opencode struct{}

// OpencodeTextID is the id of the event that comes of the texts of a message.
func OpencodeTextID(message string) string { return message }

func (opencode) Name() string { return "opencode" }

func (opencode) Capabilities() Capabilities {
	return Capabilities{
		Provider: "opencode", PermissionModes: []string{modeDefault}, DefaultPermissionMode: modeDefault,
		SupportsImages: true, SupportsAbort: true, SupportsPermissionRequests: true, SupportsTokenUsage: true,
	}
}

// Check refuses what opencode lacks.
func (o opencode) Check(s Start, t Turn) error { return permits(o.Capabilities(), s, t) }

// Command returns opencode as a server of the protocol. By itself opencode asks
// hardly anything; here it asks before it runs a command, edits a file or reads
// from the network.
func (opencode) Command(s Start) Command {
	permission := `{"bash":"ask","edit":"ask","webfetch":"ask","external_directory":"ask","doom_loop":"ask"}`
	if s.SkipPermissions {
		permission = `{"bash":"allow","edit":"allow","webfetch":"allow","external_directory":"allow","doom_loop":"allow"}`
	}
	args := []string{"acp"}
	if s.InTerminal {
		args = []string{"--session", s.Native}
	}
	return Command{
		Program: "opencode", Args: args,
		Env:     []string{"OPENCODE_PERMISSION=" + permission, "OPENCODE_DISABLE_AUTOUPDATE=1"},
		Install: "npm install -g opencode-ai",
	}
}

func (opencode) Talk(s Start) Talk {
	return newACP(s, acpProgram{
		acpDialect: opencodeDialect{}, title: "opencode", model: s.Model,
		lacks: "Chat needs opencode acp, which older versions don't have.",
		login: "Log in by running opencode auth login in a terminal.",
	})
}

// opencodeDialect is opencode's way with the Agent Client Protocol.
type opencodeDialect struct{}

func (opencodeDialect) textID(message, _ string) string { return OpencodeTextID(message) }
func (opencodeDialect) thoughtID(part, _ string) string { return part }
func (opencodeDialect) prompted(string)                 {}

// toolName returns the first title of a call, which is the tool's name.
func (opencodeDialect) toolName(c acpCall) string { return cmp.Or(c.named, c.Kind) }

func (opencodeDialect) usage(end acpPrompted) (protocol.TokenBudget, bool) {
	u := end.Usage
	if u == nil || u.Total == 0 {
		return protocol.TokenBudget{}, false
	}
	return protocol.TokenBudget{
		Used: u.Total, InputTokens: u.Input + u.CacheReads + u.CacheWrites, OutputTokens: u.Output, CacheReadTokens: u.CacheReads, CacheCreationTokens: u.CacheWrites,
	}, true
}
