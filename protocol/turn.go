package protocol

import (
	"errors"
	"fmt"
)

// A StopReason says why a coding agent's turn ended.
type StopReason string

const (
	StopComplete    StopReason = "complete"    // it has finished, or has a question
	StopInterrupted StopReason = "interrupted" // a person interrupted it
	StopError       StopReason = "error"       // it could not continue
	StopUnknown     StopReason = "unknown"     // its hook didn't say
)

// Known reports whether r is a reason of this version.
func (r StopReason) Known() bool {
	return r == StopComplete || r == StopInterrupted || r == StopError || r == StopUnknown
}

// AgentTurn says that a coding agent in a terminal, in front or started by
// hand, has finished a turn. Its stop hook reports it.
type AgentTurn struct {
	Agent       string     `json:"agent"`                  // "claude-code", …
	LastMessage string     `json:"last_message,omitempty"` // the end of what it said; at most MaxLastMessage
	Reason      StopReason `json:"reason"`
	At          int64      `json:"at"` // Unix milliseconds, by the agent's clock
}

func (AgentTurn) FrameType() FrameType { return FrameAgentTurn }

func (m AgentTurn) check() error {
	switch {
	case m.Agent == "" || len(m.Agent) > MaxAgentNameBytes:
		return errors.New("a turn of no agent, or of one with too long a name")
	case len(m.LastMessage) > MaxLastMessage:
		return errors.New("last message too long")
	case !m.Reason.Known():
		return fmt.Errorf("unknown reason %q", string(m.Reason))
	}
	return nil
}

// ToolsChanged says that the tools of a terminal's programs have changed.
type ToolsChanged struct {
	Old int   `json:"old"` // how many there were
	New int   `json:"new"` // how many there are
	At  int64 `json:"at"`  // Unix milliseconds, by the agent's clock
}

func (ToolsChanged) FrameType() FrameType { return FrameTools }
func (ToolsChanged) check() error         { return nil }

// TerminalsChanged says that the session's list of terminals has changed, or of
// plugins: one was made, has ended or was closed, or has another name.
type TerminalsChanged struct {
	At int64 `json:"at"` // Unix milliseconds, by the agent's clock
}

func (TerminalsChanged) FrameType() FrameType { return FrameTerminals }
func (TerminalsChanged) check() error         { return nil }

// AgentReported is the body of POST /sessions/{sid}/ptys/{pid}/agent-started and
// agent-ready on the agent's loopback MCP listener.
type AgentReported struct {
	Agent   string `json:"agent"`
	Session string `json:"session,omitempty"` // the coding agent's own id of the session that it has open
}

// AgentStoppedReport is the body of POST
// /sessions/{sid}/ptys/{pid}/agent-stopped on the agent's loopback MCP listener
// (seed 001).
type AgentStoppedReport struct {
	AgentReported
	LastMessage string     `json:"lastMessage"`
	Reason      StopReason `json:"reason"` // default complete
}

// PTYCompleted is the body of POST /pty-completed: an agent reports a finished
// turn to the control plane. The request is signed, see DeviceTranscript.
type PTYCompleted struct {
	SessionID   SessionID  `json:"session_id"`
	PTYID       PTYID      `json:"pty_id"`
	Agent       string     `json:"agent"`
	Status      StopReason `json:"status"`
	LastMessage string     `json:"last_message,omitempty"`
	At          int64      `json:"at"` // Unix milliseconds
}
