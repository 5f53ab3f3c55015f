package protocol

import "encoding/json"

// A PTYInfo describes one terminal in GET /sessions/{sid}/ptys.
type PTYInfo struct {
	ID        PTYID   `json:"id"`
	CreatorID UserID  `json:"creator_id,omitempty"`
	Command   string  `json:"command,omitempty"`
	Dir       string  `json:"dir,omitempty"` // where it began, below the workspace; absent: in that
	Cols      int     `json:"cols"`
	Rows      int     `json:"rows"`
	CreatedAt int64   `json:"created_at"` // Unix milliseconds
	Exited    *Exited `json:"exited,omitempty"`
	Recording string  `json:"recording,omitempty"` // id of the recording that runs

	Agent *AgentReport `json:"agent,omitempty"` // the coding agent that is or was in front

	Egress EgressState `json:"egress,omitempty"` // absent: off
	Shared Share       `json:"shared,omitempty"` // to whose programs it is open; absent: to its own alone

	Conversation ConversationID `json:"conversation,omitempty"` // that goes on in it

	Spawn    string `json:"spawn,omitempty"`     // as pty.create says, absent: eager
	OnDetach string `json:"on_detach,omitempty"` // as pty.create says, absent: keep
	Waiting  bool   `json:"waiting,omitempty"`   // its program starts with the first byte that is typed
}

// A RecordingInfo describes one recording, an asciicast v2 file.
type RecordingInfo struct {
	ID        string `json:"id"`
	PTYID     PTYID  `json:"pty_id"`
	Command   string `json:"command,omitempty"` // of the terminal
	Cols      int    `json:"cols"`
	Rows      int    `json:"rows"`
	StartedAt int64  `json:"started_at"`         // Unix milliseconds
	EndedAt   int64  `json:"ended_at,omitempty"` // Unix milliseconds; absent while it runs
	Bytes     int64  `json:"bytes"`              // of the file so far
	Note      string `json:"note,omitempty"`     // why it ended early
}

// A RecordingList is the answer of GET /sessions/{sid}/recordings.
type RecordingList struct {
	Recordings []RecordingInfo `json:"recordings"`
}

// MarshalJSON writes an empty list as [], not null.
func (l RecordingList) MarshalJSON() ([]byte, error) {
	type plain RecordingList
	l.Recordings = present(l.Recordings)
	return json.Marshal(plain(l))
}

// A PTYList is the answer of GET /sessions/{sid}/ptys.
type PTYList struct {
	PTYs     []PTYInfo `json:"ptys"`
	Revision string    `json:"revision"`
}

// MarshalJSON writes an empty list as [], not null.
func (l PTYList) MarshalJSON() ([]byte, error) {
	type plain PTYList
	l.PTYs = present(l.PTYs)
	return json.Marshal(plain(l))
}

// A CommandEnvelope carries a signed command (seed 003 §3.3). Everything but
// JWS is a routing hint; only the signed payload is executed.
type CommandEnvelope struct {
	Type      string        `json:"type"` // EnvelopeType
	CommandID CommandID     `json:"commandId"`
	TraceID   TraceID       `json:"traceId"`
	IssuedAt  int64         `json:"issuedAt"` // Unix milliseconds
	TTLMs     int64         `json:"ttlMs"`
	Target    CommandTarget `json:"target"`
	JWS       string        `json:"jws"`
}

// EnvelopeType and CallbackType are the values of "type" (seed 003).
const (
	EnvelopeType = "control.command"
	CallbackType = "control.callback"
)

// A CommandTarget says where a command goes: to a sandbox, its session and
// terminal, or (seed 003) to a browser tab.
type CommandTarget struct {
	SandboxID   SandboxID `json:"sandboxId,omitempty"`
	SessionID   SessionID `json:"sessionId,omitempty"`
	PTYID       PTYID     `json:"ptyId,omitempty"`
	ExtensionID string    `json:"extensionId,omitempty"`
	TabID       int64     `json:"tabId,omitempty"`
	BrowserID   string    `json:"browserId,omitempty"` // the extension's installation; empty: the only one
}

// Callback statuses.
const (
	StatusOK      = "ok"
	StatusError   = "error"
	StatusUnknown = "unknown" // the executor died in the middle; it will not run again
)

// An ExecutionCallback reports a command's outcome (seed 003 §5.3).
type ExecutionCallback struct {
	Type      string          `json:"type"` // CallbackType
	CommandID CommandID       `json:"commandId"`
	TraceID   TraceID         `json:"traceId,omitempty"`
	At        int64           `json:"at"` // Unix milliseconds
	Status    string          `json:"status"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *ErrorBody      `json:"error,omitempty"`
	Telemetry *Telemetry      `json:"telemetry,omitempty"`
}

// Telemetry of an execution.
type Telemetry struct {
	DurationMs int64 `json:"durationMs"`
	Attempt    int   `json:"attempt"`
}

// OpResult is the result of an operation: its kind, and the terminal or session
// that it made or changed.
type OpResult struct {
	Kind      string    `json:"kind"`
	SessionID SessionID `json:"sessionId,omitempty"`
	PTYID     PTYID     `json:"ptyId,omitempty"`

	RecordingID string     `json:"recordingId,omitempty"`
	AgentState  AgentState `json:"agentState,omitempty"` // of agent.*

	Approval *Approval `json:"approval,omitempty"` // of egress.decide and broker.decide: as it stands now
	Applied  bool      `json:"applied,omitempty"`  // by this command rather than an earlier one

	CDP json.RawMessage `json:"cdp,omitempty"` // of cdp.send: what Chromium answered

	With Share `json:"with,omitempty"` // of terminal.share: as the terminal is open now

	ConversationID ConversationID  `json:"conversationId,omitempty"` // of chat.* and tool.decide
	Sidebar        json.RawMessage `json:"sidebar,omitempty"`        // of sidebar.*: an op.SidebarResult

	*SyncResult // of sync.pair
}

// SyncResult is what a step of sync.pair gives: first what the laptop needs to
// pair, then where it may push.
type SyncResult struct {
	Pairing       PairingID `json:"pairing,omitempty"`
	SinkPublicKey []byte    `json:"sinkPublicKey,omitempty"` // X25519, 32 B
	SinkHostname  string    `json:"sinkHostname,omitempty"`
	ExpiresAt     int64     `json:"expiresAt,omitempty"` // Unix ms, of a pairing that isn't finished
	URL           string    `json:"url,omitempty"`
	Fingerprint   string    `json:"fingerprint,omitempty"`
	Warning       string    `json:"warning,omitempty"` // for whoever has paired
}
