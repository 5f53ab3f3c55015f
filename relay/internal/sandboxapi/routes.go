package sandboxapi

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// Register adds the routes.
func (a *API) Register(mux access.Router) {
	proxy := a.proxy(answerTimeout)
	for pattern, need := range proxied {
		mux.HandleFunc(pattern, a.pass(need, proxy))
	}
	tools := a.proxy(0)
	for _, pattern := range toolRoutes {
		mux.HandleFunc(pattern, a.pass(protocol.CapMCP, tools))
	}
	mux.HandleFunc("OPTIONS /sessions/{sid}/uploads", tusOptions)
	mux.HandleFunc("OPTIONS /sessions/{sid}/uploads/{uid}", tusOptions)
	mux.HandleFunc("POST /sessions/{sid}/ptys", a.createPTY)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}", a.closePTY)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/signal", a.signal)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/share", a.share)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent", a.startAgent)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/pause", a.steerAgent(op.KindAgentPause))
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/resume", a.steerAgent(op.KindAgentResume))
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/stop", a.steerAgent(op.KindAgentStop))
	a.registerSessionAgent(mux)
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/log", a.readLog)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/recording", a.startRecording)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}/recording", a.stopRecording)
	mux.HandleFunc("POST /sessions/{sid}/env", a.applyEnv)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/env", a.applyEnv)
	mux.HandleFunc("GET /sessions/{sid}/approvals/events", a.followApprovals)
	mux.HandleFunc("POST /sessions/{sid}/approvals/{aid}", a.decide)
	mux.HandleFunc("POST /sessions/{sid}/egress/approve", a.approveEgress)
	mux.HandleFunc("POST /sessions/{sid}/egress/revoke", a.revokeEgress)
}

// proxied are the routes that the sandbox itself answers, with the capability
// that each needs.
var proxied = map[string]protocol.Capability{
	"GET /sessions/{sid}/ptys":             protocol.CapView,
	"GET /sessions/{sid}/agent":            protocol.CapView,
	"GET /sessions/{sid}/recordings":       protocol.CapView,
	"GET /sessions/{sid}/recordings/{rid}": protocol.CapView,
	"GET /sessions/{sid}/files":            protocol.CapFilesRead,
	"GET /sessions/{sid}/files/archive":    protocol.CapFilesRead,
	"GET /sessions/{sid}/files/watch":      protocol.CapFilesRead,
	"POST /sessions/{sid}/files/mkdir":     protocol.CapFilesWrite,
	"POST /sessions/{sid}/files/move":      protocol.CapFilesWrite,
	"GET /sessions/{sid}/file":             protocol.CapFilesRead,
	"PUT /sessions/{sid}/file":             protocol.CapFilesWrite,
	"DELETE /sessions/{sid}/file":          protocol.CapFilesWrite,
	"GET /sessions/{sid}/file/stat":        protocol.CapFilesRead,
	"POST /sessions/{sid}/upload":          protocol.CapFilesWrite,
	"POST /sessions/{sid}/uploads":         protocol.CapFilesWrite,
	"HEAD /sessions/{sid}/uploads/{uid}":   protocol.CapFilesWrite,
	"PATCH /sessions/{sid}/uploads/{uid}":  protocol.CapFilesWrite,
	"DELETE /sessions/{sid}/uploads/{uid}": protocol.CapFilesWrite,
	"GET /sessions/{sid}/env":              protocol.CapEnv,
	"GET /sessions/{sid}/approvals":        protocol.CapApprove,
	"GET /sessions/{sid}/egress/pending":   protocol.CapApprove,
	"GET /sessions/{sid}/egress/allowlist": protocol.CapApprove,
	"GET /sessions/{sid}/metrics":          protocol.CapView,
	"GET /sessions/{sid}/plugins":          protocol.CapPlugins,
	"GET /sessions/{sid}/browser":          protocol.CapView,
	"GET /sessions/{sid}/sync":             protocol.CapView,
	"GET /sessions/{sid}/browser/frames":   protocol.CapView,
}

// toolRoutes are those of the sandbox's tools. They need the capability mcp; an
// answer takes as long as the tool.
var toolRoutes = []string{
	"GET /sessions/{sid}/mcp", "POST /sessions/{sid}/mcp", "DELETE /sessions/{sid}/mcp",
	"GET /sessions/{sid}/mcp/tools", "POST /sessions/{sid}/mcp/tools/call", "GET /sessions/{sid}/mcp/items",
}
