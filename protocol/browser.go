package protocol

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// SubprotocolTerminal is the WebSocket subprotocol of clients that number their
// input and acknowledge output. SubprotocolTicket is the ticket's prefix in a
// subprotocol, for clients that can't set headers.
const (
	SubprotocolTerminal = "terminal.v2"
	SubprotocolTicket   = "ticket."
)

// Types of the JSON text frames that a browser sends (seed 001).
const (
	ClientResize         = "resize"          // cols, rows; the controller only
	ClientRequestControl = "request_control" // take control when free, else ask for it
	ClientTakeControl    = "take_control"    // take control when free
	ClientTakeBack       = "take_back"       // take control from whoever has it; the owner only
	ClientCancelRequest  = "cancel_request"  // withdraw a request
	ClientGrantControl   = "grant_control"   // to; the controller only
	ClientRevokeControl  = "revoke_control"  // give control back; the controller only
	ClientLead           = "lead"            // a person uses this socket's window, which gives the size
	ClientReauth         = "reauth"          // grant: renews the socket's grant
	ClientPing           = "ping"            // answered by ServerPong
	ClientAck            = "ack"             // offset: terminal.v2, what has been rendered
	ClientExecute        = "execute"         // text: typed, followed by Enter; the controller only
)

// Query parameters of the terminal socket.
const (
	QuerySince  = "since"  // a Position to continue from
	QueryClient = "client" // names a client across its sockets: 1…MaxClientBytes
	QueryMode   = "mode"   // ViewExact; needs the capability record
	QuerySize   = "size"   // SizeFollow
)

// ViewExact is the mode of a viewer that gets every byte, so the terminal waits
// for it.
const ViewExact = "exact"

// SizeFollow is the size of a socket that never sets the terminal's size: a
// side panel, a preview.
const SizeFollow = "follow"

// A ClientMessage is a JSON text frame from a browser.
type ClientMessage struct {
	Type  string
	Cols  int    // resize, within limits
	Rows  int    // resize, within limits
	To    UserID // grant_control
	Grant string // reauth

	Offset uint64 // ack
	Text   string // execute, 1…MaxExecuteBytes
}

// DecodeClientMessage decodes a text frame from a browser. Its errors are of
// kind invalid, or unsupported for an unknown type, and safe to send back.
func DecodeClientMessage(data []byte) (ClientMessage, error) {
	var raw struct {
		Type  *string         `json:"type"`
		Cols  json.RawMessage `json:"cols"`
		Rows  json.RawMessage `json:"rows"`
		To    *string         `json:"to"`
		Grant *string         `json:"grant"`

		Offset *uint64 `json:"offset"`
		Text   *string `json:"text"`
	}
	if err := UnmarshalObject(data, &raw); err != nil || raw.Type == nil {
		return ClientMessage{}, Errorf(KindInvalid, "a text frame must be a JSON object with a type")
	}
	if checkDistinct(data) != nil { // two parsers could read it as different messages
		return ClientMessage{}, Errorf(KindInvalid, "a text frame must name each member once")
	}
	m := ClientMessage{Type: *raw.Type}
	var err error
	switch m.Type {
	case ClientResize:
		if m.Cols, err = clampSize("cols", raw.Cols, MaxCols); err != nil {
			return ClientMessage{}, err
		}
		m.Rows, err = clampSize("rows", raw.Rows, MaxRows)
	case ClientGrantControl:
		if raw.To == nil || !ValidID(*raw.To) {
			return ClientMessage{}, Errorf(KindInvalid, "grant_control needs the user id in to")
		}
		m.To = UserID(*raw.To)
	case ClientReauth:
		if raw.Grant == nil || *raw.Grant == "" {
			return ClientMessage{}, Errorf(KindInvalid, "reauth needs a grant")
		}
		m.Grant = *raw.Grant
	case ClientAck:
		if raw.Offset == nil {
			return ClientMessage{}, Errorf(KindInvalid, "ack needs an offset")
		}
		m.Offset = *raw.Offset
	case ClientExecute:
		if raw.Text == nil || *raw.Text == "" || len(*raw.Text) > MaxExecuteBytes {
			return ClientMessage{}, Errorf(KindInvalid, "execute needs a text of 1 to %d bytes", MaxExecuteBytes)
		}
		m.Text = *raw.Text
	case ClientRequestControl, ClientTakeControl, ClientTakeBack, ClientCancelRequest, ClientRevokeControl, ClientLead, ClientPing:
	default:
		err = Errorf(KindUnsupported, "unknown message type")
	}
	if err != nil {
		return ClientMessage{}, err
	}
	return m, nil
}

// clampSize reads a terminal dimension: a positive JSON integer of 16 bits,
// reduced to most.
func clampSize(name string, raw json.RawMessage, most int) (int, error) {
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil || string(raw) == "null" || n < 1 || n > 65535 {
		return 0, Errorf(KindInvalid, "resize: %s must be a whole number from 1 to 65535", name)
	}
	return min(int(n), most), nil
}

// browserInputHeader is the size in bytes of a terminal.v2 binary frame's
// header: sequence and term.
const browserInputHeader = 8 + 8

// BrowserInput is a binary frame of a terminal.v2 client: input typed under
// Term, the Seq-th of its client, counted from 1.
type BrowserInput struct {
	Seq   uint64
	Term  uint64
	Bytes []byte
}

// freeTerm marks the term of input typed while nobody had control.
const freeTerm = 1 << 63

// FreeTerm returns the term of input typed while nobody had control, after
// term. It takes the terminal, and counts only under the term that begins with
// that.
func FreeTerm(term uint64) uint64 { return term | freeTerm }

// DecodeBrowserInput decodes a binary frame of terminal.v2. Bytes aliases data.
// Its errors are of kind invalid.
func DecodeBrowserInput(data []byte) (BrowserInput, error) {
	if len(data) <= browserInputHeader {
		return BrowserInput{}, Errorf(KindInvalid, "input must be 8 bytes sequence, 8 bytes term and at least one byte")
	}
	m := BrowserInput{
		Seq:   binary.BigEndian.Uint64(data),
		Term:  binary.BigEndian.Uint64(data[8:]),
		Bytes: data[browserInputHeader:],
	}
	if m.Seq == 0 {
		return BrowserInput{}, Errorf(KindInvalid, "sequence numbers begin with 1")
	}
	return m, nil
}

// AppendBrowserInput appends m as a binary frame of terminal.v2 to dst.
func AppendBrowserInput(dst []byte, m BrowserInput) []byte {
	dst = binary.BigEndian.AppendUint64(dst, m.Seq)
	dst = binary.BigEndian.AppendUint64(dst, m.Term)
	return append(dst, m.Bytes...)
}

// Types of the JSON text frames that a relay sends.
const (
	ServerControlState     = "control_state"
	ServerControlTaken     = "control_taken"
	ServerControlRequested = "control_requested"
	ServerControlGranted   = "control_granted"
	ServerControlRevoked   = "control_revoked"
	ServerControlExpired   = "control_expired"
	ServerAttached         = "attached"
	ServerResync           = "resync"
	ServerResized          = "resized"
	ServerPresence         = "presence"
	ServerPTYClosed        = "pty_closed"
	ServerInputRefused     = "input_refused"
	ServerError            = "error"
	ServerWaiting          = "waiting"
	ServerReauthed         = "reauthed"
	ServerInputAck         = "input_ack"
	ServerMoved            = "moved"
	ServerRecording        = "recording"
	ServerAgentState       = "agent_state"
	ServerOutputHeld       = "output_held"
	ServerAgentStopped     = "agent_stopped"
	ServerToolsChanged     = "tools_changed"
	ServerPong             = "pong"
	ServerTerminals        = "terminals_changed"
	ServerSizeLed          = "leading"
	ServerShared           = "shared"
	ServerAuthURL          = "auth_url"
)

// A ServerMessage is a JSON text frame to a browser. Encode it with
// [EncodeServerMessage].
type ServerMessage interface{ serverType() string }

// ControlState is the complete state of control. Controller and Requests are
// always present, since seed 001's client keeps the old value of a missing one.
type ControlState struct {
	Controller UserID   `json:"controller"`         // "" when free
	Requests   []UserID `json:"requests"`           // in the order they were made
	Term       uint64   `json:"term"`               // the lease's
	GraceMS    int64    `json:"grace_ms,omitempty"` // the controller is away; time left
	AgentState string   `json:"agent_state"`        // an AgentState
	You        UserID   `json:"you"`                // the viewer's own id
	CanControl bool     `json:"can_control"`        // the viewer's grant carries "control"
	Agent      string   `json:"agent,omitempty"`    // name of the present or last coding agent in front

	LastTurn *AgentStoppedMessage `json:"last_turn,omitempty"` // the last one that a coding agent finished

	CanTakeBack bool `json:"can_take_back,omitempty"` // the viewer owns the session
}

// ControlTaken says that Controller took a free terminal.
type ControlTaken struct {
	Controller UserID `json:"controller"`
	Term       uint64 `json:"term"`
}

// ControlRequested says that From asks the controller for control.
type ControlRequested struct {
	From     UserID   `json:"from"`
	Requests []UserID `json:"requests"`
}

// ControlGranted says that From handed control to To, or lost it for a reason.
type ControlGranted struct {
	From       UserID `json:"from"`
	To         UserID `json:"to"`
	Controller UserID `json:"controller"`
	Term       uint64 `json:"term"`

	Reason LeaseReason `json:"reason,omitempty"`
}

// ControlRevoked says that From gave control back; the terminal is free.
type ControlRevoked struct {
	From       UserID `json:"from"`
	Controller UserID `json:"controller"`
}

// ControlExpired says that From was away too long; the terminal is free.
type ControlExpired struct {
	From       UserID `json:"from"`
	Controller UserID `json:"controller"`
}

// Attach modes.
const (
	ModeResume   = "resume"   // the bytes continue where the client asked, or at the log's start
	ModeKeyframe = "keyframe" // a keyframe replaces what was before Offset
	ModeGap      = "gap"      // bytes between where the client was and Offset are missing
)

// Attached says what the following binary frames are.
type Attached struct {
	Epoch         Epoch  `json:"epoch"`
	Offset        uint64 `json:"offset"` // of the next byte
	Head          uint64 `json:"head"`   // bytes before it are history: answer no queries in them
	Cols          int    `json:"cols"`
	Rows          int    `json:"rows"`
	Mode          string `json:"mode"`
	KeyframeBytes int    `json:"keyframe_bytes"` // not 0: the next binary frame is a keyframe of so many bytes
}

// Resync says that the viewer is moved ahead to Offset.
type Resync struct {
	Epoch         Epoch  `json:"epoch"`
	Offset        uint64 `json:"offset"`
	Head          uint64 `json:"head"`
	Cols          int    `json:"cols"`
	Rows          int    `json:"rows"`
	KeyframeBytes int    `json:"keyframe_bytes"` // as in Attached
}

// SizeChanged is "resized": the terminal's size from Offset on.
type SizeChanged struct {
	Offset uint64 `json:"offset"`
	Cols   int    `json:"cols"`
	Rows   int    `json:"rows"`
}

// A PresentViewer is one person watching.
type PresentViewer struct {
	UserID     UserID `json:"user_id"`
	Name       string `json:"name"`
	Sockets    int    `json:"sockets"`
	CanControl bool   `json:"can_control"`
}

// Presence says who watches: Count people, of whom the first
// [MaxPresenceViewers] are named.
type Presence struct {
	Count   int             `json:"count"`
	Viewers []PresentViewer `json:"viewers"`
}

// PTYClosed says that the process ended; the socket closes with 4004 next.
type PTYClosed struct {
	ExitCode int    `json:"exit_code"` // −1 when Signal is set
	Signal   string `json:"signal,omitempty"`
	Offset   uint64 `json:"offset"`
}

// InputDropped is "input_refused": the viewer's input was not written.
type InputDropped struct {
	Reason RefusalReason `json:"reason"`
	Seq    uint64        `json:"seq,omitempty"` // terminal.v2: which
}

// InputWritten is "input_ack": all input of the client up to Seq was written.
type InputWritten struct {
	Seq uint64 `json:"seq"`
}

// Moved says that the terminal is at another relay; close 1012 follows.
type Moved struct {
	Origin string `json:"origin"` // POST /pty-session there
}

// RecordingState is "recording": whether the terminal is being recorded.
type RecordingState struct {
	ID string `json:"id"` // "" when not
}

// AgentStateMessage is "agent_state": the state of the coding agent in front.
type AgentStateMessage struct {
	AgentState AgentState `json:"agent_state"`
	Agent      string     `json:"agent"` // its name, "" when there never was one
}

// OutputHeld goes to the controller. The last input may be the beginning of a
// secret, so its echo waits for the next one.
type OutputHeld struct {
	Held bool `json:"held"`
}

// AgentStoppedMessage is "agent_stopped": a coding agent has finished a turn.
type AgentStoppedMessage struct {
	Agent       string     `json:"agent"`
	LastMessage string     `json:"lastMessage"`
	Reason      StopReason `json:"reason"`
	Timestamp   int64      `json:"timestamp"` // Unix milliseconds
}

// SizeLed is "leading", for the controller's sockets: whether this socket's
// window gives the terminal its size.
type SizeLed struct {
	Leads bool `json:"leads"`
}

// ListChanged is "terminals_changed": the session's list of terminals, GET
// /sessions/{sid}/ptys, or of plugins, GET /sessions/{sid}/plugins, has changed.
type ListChanged struct {
	Timestamp int64 `json:"timestamp"` // Unix milliseconds
}

// PongMessage is "pong". It answers one ping or several at once.
type PongMessage struct{}

// ToolCountChanged is "tools_changed": the tools of the terminal's programs
// have changed.
type ToolCountChanged struct {
	OldCount  int   `json:"oldCount"`
	NewCount  int   `json:"newCount"`
	Timestamp int64 `json:"timestamp"` // Unix milliseconds
}

// ErrorMessage answers a frame that could not be obeyed.
type ErrorMessage struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// Reasons of Waiting.
const (
	WaitingSandbox = "sandbox_offline" // the sandbox has no tunnel at the moment
)

// Waiting says that the terminal pauses for Reason; output resumes by itself.
type Waiting struct {
	Reason string `json:"reason"`
}

// Reauthed says that the socket now uses another grant.
type Reauthed struct {
	ExpiresAt int64 `json:"expires_at"` // Unix seconds
}

func (ControlState) serverType() string     { return ServerControlState }
func (ControlTaken) serverType() string     { return ServerControlTaken }
func (ControlRequested) serverType() string { return ServerControlRequested }
func (ControlGranted) serverType() string   { return ServerControlGranted }
func (ControlRevoked) serverType() string   { return ServerControlRevoked }
func (ControlExpired) serverType() string   { return ServerControlExpired }
func (Attached) serverType() string         { return ServerAttached }
func (Resync) serverType() string           { return ServerResync }
func (SizeChanged) serverType() string      { return ServerResized }
func (Presence) serverType() string         { return ServerPresence }
func (PTYClosed) serverType() string        { return ServerPTYClosed }
func (InputDropped) serverType() string     { return ServerInputRefused }
func (ErrorMessage) serverType() string     { return ServerError }
func (Waiting) serverType() string          { return ServerWaiting }
func (Reauthed) serverType() string         { return ServerReauthed }
func (InputWritten) serverType() string     { return ServerInputAck }
func (Moved) serverType() string            { return ServerMoved }
func (RecordingState) serverType() string   { return ServerRecording }

func (AgentStateMessage) serverType() string   { return ServerAgentState }
func (OutputHeld) serverType() string          { return ServerOutputHeld }
func (AgentStoppedMessage) serverType() string { return ServerAgentStopped }
func (ToolCountChanged) serverType() string    { return ServerToolsChanged }
func (PongMessage) serverType() string         { return ServerPong }
func (ListChanged) serverType() string         { return ServerTerminals }
func (SizeLed) serverType() string             { return ServerSizeLed }

// Lists are always present, empty rather than null: a browser iterates over
// them, and seed 001's client keeps the old value of a missing one.

func (m ControlState) MarshalJSON() ([]byte, error) {
	type plain ControlState
	m.Requests = present(m.Requests)
	return json.Marshal(plain(m))
}

func (m ControlRequested) MarshalJSON() ([]byte, error) {
	type plain ControlRequested
	m.Requests = present(m.Requests)
	return json.Marshal(plain(m))
}

func (m Presence) MarshalJSON() ([]byte, error) {
	type plain Presence
	m.Viewers = present(m.Viewers)
	return json.Marshal(plain(m))
}

func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// EncodeServerMessage returns m as the JSON of a text frame, "type" first.
func EncodeServerMessage(m ServerMessage) []byte {
	body, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("protocol: %T can't be encoded: %v", m, err)) // plain structs of this file only
	}
	out := fmt.Appendf(nil, `{"type":%q`, m.serverType())
	if len(body) > len("{}") {
		out = append(out, ',')
	}
	return append(out, body[1:]...)
}
