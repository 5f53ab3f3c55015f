package op

import "github.com/fairlead/fairlead/protocol"

// Kinds of operations on the coding agent in front of a terminal.
const (
	KindAgentStart  = "agent.start"
	KindAgentPause  = "agent.pause"
	KindAgentResume = "agent.resume"
	KindAgentStop   = "agent.stop"
)

var agents = []Spec{
	{Kind: KindAgentStart, Needs: protocol.CapAgent, Target: TargetTerminal, Body: (*AgentStart)(nil)},
	{Kind: KindAgentPause, Needs: protocol.CapAgent, Target: TargetTerminal, Body: (*Plain)(nil)},
	{Kind: KindAgentResume, Needs: protocol.CapAgent, Target: TargetTerminal, Body: (*Plain)(nil)},
	{Kind: KindAgentStop, Needs: protocol.CapAgent, Target: TargetTerminal, Body: (*Plain)(nil)},
}

// AgentStart is the body of agent.start. Without Command it starts the agent
// called Name: claude, codex, gemini, opencode, droid, openclaw or cursor.
type AgentStart struct {
	Name    string   `json:"name,omitempty"`    // shown to viewers; at most [protocol.MaxAgentNameBytes]
	Command string   `json:"command,omitempty"` // run by sh -c; needs the capability shell
	Args    []string `json:"args,omitempty"`    // with Command: argv, no shell in between; else the agent's own
}

// Check requires an agent or a command.
func (b *AgentStart) Check() error {
	if b.Name == "" && b.Command == "" {
		return protocol.Errorf(protocol.KindInvalid, "op.name or op.command is missing")
	}
	if len(b.Name) > protocol.MaxAgentNameBytes {
		return protocol.Errorf(protocol.KindInvalid, "op.name is longer than %d bytes", protocol.MaxAgentNameBytes)
	}
	return nil
}

// AskedBy requires the capability shell to choose what is run.
func (b *AgentStart) AskedBy(protocol.UserID) ([]protocol.Capability, error) {
	if b.Command != "" || len(b.Args) > 0 {
		return []protocol.Capability{protocol.CapShell}, nil
	}
	return nil, nil
}
