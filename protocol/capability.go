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
	CapSync       Capability = "sync"        // say whose browser's cookies a session gets
	CapAdmin      Capability = "admin"       // sessions, revocation, drain
)

// Capabilities lists every capability.
var Capabilities = []Capability{
	CapView, CapControl, CapShell, CapEnv, CapAgent, CapFilesRead, CapFilesWrite,
	CapChat, CapMCP, CapPlugins, CapApprove, CapRecord, CapSync, CapAdmin,
}

// Known reports whether c is a capability of this version.
func (c Capability) Known() bool { return slices.Contains(Capabilities, c) }
