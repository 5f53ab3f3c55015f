package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
)

// An ApprovalKind says what is to be approved.
type ApprovalKind string

const (
	ApprovalEgress ApprovalKind = "egress" // a connection to a host and port that no rule knows
	ApprovalBroker ApprovalKind = "broker" // sending a secret to a host for the first time
	ApprovalTool   ApprovalKind = "tool"   // a coding agent's use of a tool in a conversation
)

// Known reports whether k is a kind of this version.
func (k ApprovalKind) Known() bool {
	return k == ApprovalEgress || k == ApprovalBroker || k == ApprovalTool
}

// An ApprovalState is the state of an approval.
type ApprovalState string

const (
	ApprovalPending ApprovalState = "pending" // nobody has decided, and there is time
	ApprovalDecided ApprovalState = "decided" // the first decision counts
	ApprovalExpired ApprovalState = "expired" // nobody decided in time: denied

	// ApprovalCancelled: whoever asked doesn't need an answer any more.
	ApprovalCancelled ApprovalState = "cancelled"
)

// A Decision answers an approval.
type Decision string

const (
	AllowOnce   Decision = "allow_once"   // what waits now, nothing later
	AllowAlways Decision = "allow_always" // and a rule of the session
	Deny        Decision = "deny"         // what waits now
	DenyAlways  Decision = "deny_always"  // also as a rule of the session
)

// Known reports whether d is a decision of this version.
func (d Decision) Known() bool {
	return d == AllowOnce || d == AllowAlways || d == Deny || d == DenyAlways
}

// Allows reports whether d allows the request.
func (d Decision) Allows() bool { return d == AllowOnce || d == AllowAlways }

// Lasts reports whether d also makes a rule.
func (d Decision) Lasts() bool { return d == AllowAlways || d == DenyAlways }

// An Approval is a request that a sandbox may carry out only if somebody allows
// it. The agent owns it, and only its clock decides when it expires.
type Approval struct {
	ID        string        `json:"id"`
	Revision  uint64        `json:"revision"` // 1, raised by every change; a decision names the one it saw
	Kind      ApprovalKind  `json:"kind"`
	SessionID SessionID     `json:"session_id"`
	PTYID     PTYID         `json:"pty_id,omitempty"` // the first that asked
	Host      string        `json:"host,omitempty"`   // canonical; egress and broker
	Port      int           `json:"port,omitempty"`   // egress
	Secret    string        `json:"secret,omitempty"` // broker: name of the secret
	State     ApprovalState `json:"state"`

	// Of a tool: the conversation, the command that began its run, the tool and
	// what it is to do.
	ConversationID ConversationID  `json:"conversation_id,omitempty"`
	RunID          CommandID       `json:"run_id,omitempty"`
	Tool           string          `json:"tool,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"`        // while it is pending, and at most MaxToolInput
	InputSHA256    string          `json:"input_sha256,omitempty"` // of the input, hexadecimal
	Remember       string          `json:"remember,omitempty"`     // decided: what needs no approval any more, as ToolDecide has it

	Decision  Decision  `json:"decision,omitempty"`
	UserID    UserID    `json:"user_id,omitempty"`    // who decided
	AskedAt   int64     `json:"asked_at"`             // Unix milliseconds
	EndsAt    int64     `json:"ends_at"`              // Unix milliseconds: when it expires, was decided or did expire; 0: it doesn't expire
	LeftMs    int64     `json:"left_ms,omitempty"`    // pending: milliseconds until it expires, when this was sent
	GrantID   GrantID   `json:"grant_id,omitempty"`   // under which somebody decided
	CommandID CommandID `json:"command_id,omitempty"` // by which it was decided
}

// ApprovalParams are the params of OPEN for the approvals of a session.
type ApprovalParams struct {
	SessionID SessionID `json:"session_id"`
	Since     *Position `json:"since,omitempty"` // nil: from now on
}

// ApprovalsOpened is the result of OPENED for the approvals of a session.
type ApprovalsOpened struct {
	Epoch   Epoch      `json:"epoch"`
	Offset  uint64     `json:"offset"`         // of the next event
	Gap     bool       `json:"gap,omitempty"`  // Since can't be served: events are missing before Offset
	Pending []Approval `json:"pending"`        // their state at Offset, the oldest first
	More    bool       `json:"more,omitempty"` // Pending lacks approvals, or inputs of tools: the list has them
}

// ApprovalEvent is one change of an approval, with its new state.
type ApprovalEvent struct {
	Offset   uint64   `json:"offset"` // counts the events of a session
	Approval Approval `json:"approval"`
}

func (ApprovalEvent) FrameType() FrameType { return FrameApproval }

func (m ApprovalEvent) check() error {
	a := m.Approval
	if a.ID == "" || len(a.ID) > MaxIDBytes {
		return errors.New("an approval without an id")
	}
	switch a.State {
	case ApprovalPending, ApprovalExpired, ApprovalCancelled:
	case ApprovalDecided:
		if !a.Decision.Known() {
			return fmt.Errorf("unknown decision %q", string(a.Decision))
		}
	default:
		return fmt.Errorf("unknown state %q", string(a.State))
	}
	return nil
}

// An ApprovalList is the answer of GET /sessions/{sid}/approvals.
type ApprovalList struct {
	Approvals []Approval `json:"approvals"` // pending ones first, then the latest 100
	Epoch     Epoch      `json:"epoch"`
	Offset    uint64     `json:"offset"` // number of the next event
}

// ApprovalNotice is the body of POST /approvals: an agent reports a change to
// the control plane.
type ApprovalNotice struct {
	Certificate string          `json:"certificate"`
	Approval    json.RawMessage `json:"approval"`  // an Approval
	At          int64           `json:"at"`        // Unix milliseconds
	Signature   []byte          `json:"signature"` // over ApprovalTranscript, by the certified key
}
