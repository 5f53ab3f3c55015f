package protocol

import (
	"errors"
	"fmt"
)

// An AgentState is the state of the coding agent in front of a terminal.
type AgentState string

const (
	AgentRunning AgentState = "running" // it works: what humans type is refused
	AgentWaiting AgentState = "waiting" // it has finished its turn and waits for a prompt: humans may type
	AgentPaused  AgentState = "paused"  // its processes are stopped: humans may type
	AgentStopped AgentState = "stopped" // there is none
)

// AgentHolder is the lease's holder while a coding agent has it. It has no
// grant, and no user has this id.
const AgentHolder UserID = "agent"

// AgentReport reports the state of the coding agent in front of a terminal: at
// each change, and in OPENED if there was ever one.
type AgentReport struct {
	State    AgentState `json:"state"`
	Name     string     `json:"name,omitempty"`      // "claude", …
	ExitCode *int       `json:"exit_code,omitempty"` // how it ended
	Signal   string     `json:"signal,omitempty"`    // "SIGKILL", …; then there is no exit code
}

func (AgentReport) FrameType() FrameType { return FrameAgent }

func (m AgentReport) check() error {
	switch m.State {
	case AgentRunning, AgentWaiting, AgentPaused, AgentStopped:
	default:
		return fmt.Errorf("unknown agent state %q", string(m.State))
	}
	if len(m.Name) > MaxAgentNameBytes {
		return errors.New("agent name too long")
	}
	return nil
}

// SessionAgent names the terminal of the coding agent that belongs to a session
// rather than to a terminal: clients of seed 001 start an agent without naming
// a terminal.
func SessionAgent(session SessionID) PTYID { return PTYID(session) + "-agent" }

// A SessionAgentInfo is the answer of GET /sessions/{sid}/agent.
type SessionAgentInfo struct {
	ID    PTYID      `json:"id"`
	State AgentState `json:"state"`
}
