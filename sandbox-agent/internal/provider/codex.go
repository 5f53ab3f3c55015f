package provider

import "github.com/fairlead/fairlead/protocol/op"

// codex is OpenAI's codex (0.169.0), by its app-server: JSON-RPC in lines
// without the member "jsonrpc".
//
// codex keeps a session in ~/.codex/sessions/YYYY/MM/DD/rollout-…-<thread>.jsonl.
// Its rows event_msg with payload.type item_completed hold turn_id and item, with
// the ids that the app-server tells of: see [CodexItemID]. The id that we give a
// message comes back as client_id of the item UserMessage: see [CodexMessageID].
type codex struct{}

func (codex) Name() string { return "codex" }

func (codex) Capabilities() Capabilities {
	return Capabilities{
		Provider: "codex", PermissionModes: []string{modeDefault, "acceptEdits", op.BypassPermissions}, DefaultPermissionMode: modeDefault,
		SupportsImages: true, SupportsAbort: true, SupportsPermissionRequests: true, SupportsTokenUsage: true,
	}
}

// Check refuses modes that codex lacks, and lists of tools not to use.
func (c codex) Check(s Start, t Turn) error { return permits(c.Capabilities(), s, t) }

func (codex) Command(s Start) Command {
	args := []string{"app-server"}
	if s.InTerminal {
		args = []string{"resume", s.Native}
	}
	return Command{Program: "codex", Args: args, Install: "npm install -g @openai/codex"}
}

func (codex) Talk(s Start) Talk {
	return &codexTalk{
		turns: turns{title: "codex", start: s, lacks: "Chat needs codex app-server, which older versions don't have."},
		tools: make(map[string]codexTool), asks: make(map[string]codexAsk),
	}
}
