package protocol

import "encoding/json"

// Tool describes a tool as MCP and the REST façade of seed 001 list it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"` // an object
}

// ToolList is the answer of GET /sessions/{sid}/mcp/tools.
type ToolList struct {
	Tools []Tool `json:"tools"`
}

// ToolCall is the body of POST /sessions/{sid}/mcp/tools/call.
type ToolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ToolResult is its answer: content as in MCP.
type ToolResult struct {
	Content []ToolContent `json:"content"`
	IsError bool          `json:"isError,omitempty"`
}

// ToolContent is a piece of a result: text, or an image.
type ToolContent struct {
	Type     string `json:"type"` // text or image
	Text     string `json:"text,omitempty"`
	Data     []byte `json:"data,omitempty"`     // standard base64
	MIMEType string `json:"mimeType,omitempty"` // of data
}

// Credentials of a terminal for the agent's loopback MCP listener: in the
// environment of its programs, and in ~/.fairlead/mcp.json for programs that
// outlive an agent.
type MCPCredentials struct {
	URL       string    `json:"url"` // of MCP: http://127.0.0.1:PORT/sessions/SID/mcp
	SessionID SessionID `json:"session_id"`
	PTYID     PTYID     `json:"pty_id"`
	Secret    string    `json:"secret"`
}

// MCPSecretHeader carries MCPCredentials.Secret; the query's pty_id says whose.
const MCPSecretHeader = "X-MCP-Secret"

// An Integration is an account of a provider that is attached to a terminal.
type Integration struct {
	Provider       string `json:"provider"` // gmail, github, google_drive or google_calendar
	ActivePolicyID string `json:"activePolicyId"`
	AccountEmail   string `json:"accountEmail"` // or its login name
}

// IntegrationList is the answer of GET
// /internal/terminals/{ptyId}/integrations?session_id=.
type IntegrationList struct {
	Integrations []Integration `json:"integrations"`
}

// GatewayRequest is the body of POST /internal/gateway/{provider}/execute.
type GatewayRequest struct {
	SessionID SessionID       `json:"session_id"`
	PTYID     PTYID           `json:"pty_id,omitempty"`  // whose integrations; absent: only providers that need none
	UserID    UserID          `json:"user_id,omitempty"` // who asks, through a relay; absent: a program in the sandbox
	Action    string          `json:"action"`            // gmail.search, …
	Args      json.RawMessage `json:"args,omitempty"`    // an object
}

// A GatewayDecision is the result of an attachment's policy for a request.
type GatewayDecision string

const (
	GatewayAllowed  GatewayDecision = "allowed"
	GatewayDenied   GatewayDecision = "denied"
	GatewayFiltered GatewayDecision = "filtered" // allowed, and parts of the answer are withheld
)

// GatewayAnswer is the answer of POST /internal/gateway/{provider}/execute.
type GatewayAnswer struct {
	Allowed       bool            `json:"allowed"`
	Decision      GatewayDecision `json:"decision"`
	Reason        string          `json:"reason,omitempty"` // why it was denied, or what is withheld
	Response      json.RawMessage `json:"filteredResponse,omitempty"`
	PolicyID      string          `json:"policyId,omitempty"`
	PolicyVersion int             `json:"policyVersion,omitempty"`
}

// Headers of a request that an agent signs with its device key. The signature
// covers DeviceTranscript and is in SignatureHeader, in standard base64.
const (
	CertificateHeader = "Fairlead-Certificate" // compact
	SignedAtHeader    = "Fairlead-Signed-At"   // Unix milliseconds
)
