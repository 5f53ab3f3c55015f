package protocol

import "slices"

// A Capability is one thing a grant allows.
type Capability string

const (
	CapView       Capability = "view"        // see terminals
	CapControl    Capability = "control"     // hold a terminal's lease and type
	CapShell      Capability = "shell"       // create and close terminals
	CapEnv        Capability = "env"         // set environment and secrets
	CapAgent      Capability = "agent"       // start, pause and stop coding agents
	CapFilesRead  Capability = "files.read"  // read the workspace
	CapFilesWrite Capability = "files.write" // change the workspace
	CapChat       Capability = "chat"        // talk to a coding agent
	CapMCP        Capability = "mcp"         // use the sandbox's tools
	CapPlugins    Capability = "plugins"     // open plugin sockets and previews
	CapApprove    Capability = "approve"     // answer approvals
	CapRecord     Capability = "record"      // record terminals, exact viewing
	CapAdmin      Capability = "admin"       // sessions, revocation, drain
)

// Capabilities lists every capability.
var Capabilities = []Capability{
	CapView, CapControl, CapShell, CapEnv, CapAgent, CapFilesRead, CapFilesWrite,
	CapChat, CapMCP, CapPlugins, CapApprove, CapRecord, CapAdmin,
}

// Known reports whether c is a capability of this version.
func (c Capability) Known() bool { return slices.Contains(Capabilities, c) }

// Operations that a command can carry in op.kind so far, each with the
// capability that a browser's grant needs for it.
const (
	OpSessionCreate = "session.create"
	OpSessionDelete = "session.delete"
	OpPTYCreate     = "pty.create"
	OpPTYClose      = "pty.close"
	OpPTYSignal     = "pty.signal"
	OpRecordStart   = "record.start"
	OpRecordStop    = "record.stop"
	OpPTYResize     = "pty.resize"
	OpAgentStart    = "agent.start"
	OpAgentPause    = "agent.pause"
	OpAgentResume   = "agent.resume"
	OpAgentStop     = "agent.stop"
	OpGrantRevoke   = "grant.revoke"
	OpCDPSend       = "cdp.send"
	OpEnvApply      = "env.apply"
	OpEgressDecide  = "egress.decide"
	OpEgressRevoke  = "egress.revoke"
	OpBrokerDecide  = "broker.decide"

	OpTerminalShare = "terminal.share"

	OpIntegrationsChanged = "integrations.changed"
)

// OperationCapability maps every known operation to the capability it needs.
var OperationCapability = map[string]Capability{
	OpSessionCreate: CapAdmin,
	OpSessionDelete: CapAdmin,
	OpPTYCreate:     CapShell,
	OpPTYClose:      CapShell,
	OpPTYSignal:     CapShell,
	OpRecordStart:   CapRecord,
	OpRecordStop:    CapRecord,
	OpPTYResize:     CapShell,
	OpAgentStart:    CapAgent,
	OpAgentPause:    CapAgent,
	OpAgentResume:   CapAgent,
	OpAgentStop:     CapAgent,
	OpGrantRevoke:   CapAdmin,
	OpCDPSend:       CapMCP,
	OpEnvApply:      CapEnv,
	OpEgressDecide:  CapApprove,
	OpEgressRevoke:  CapApprove,
	OpBrokerDecide:  CapApprove,

	OpTerminalShare: CapControl,

	OpIntegrationsChanged: CapAdmin, // only the control plane itself makes it
}
