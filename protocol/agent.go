package protocol

import (
	"errors"
	"fmt"
)

// An AgentState says what the coding agent in front of a terminal does.
type AgentState string

const (
	AgentRunning AgentState = "running" // it works: what humans type is refused
	AgentWaiting AgentState = "waiting" // it has finished its turn and waits for a prompt: humans may type
	AgentPaused  AgentState = "paused"  // its processes are stopped: humans may type
	AgentStopped AgentState = "stopped" // there is none
)

// AgentHolder is the holder of a lease that a coding agent has. It has no
// grant, and no user has this id.
const AgentHolder UserID = "agent"

// AgentReport tells how the coding agent in front of a terminal stands: at each
// change, and in OPENED once there was one.
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
// rather than to one of its terminals: clients of seed 001 start one without
// naming any.
func SessionAgent(session SessionID) PTYID { return PTYID(session) + "-agent" }

// A SessionAgentInfo is the answer of GET /sessions/{sid}/agent.
type SessionAgentInfo struct {
	ID    PTYID      `json:"id"`
	State AgentState `json:"state"`
}
