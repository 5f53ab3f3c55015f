package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// A ConversationID names one conversation with a coding agent: the app's session
// id of seed 002, a UUID where this system makes it.
type ConversationID string

// maxConversationID is the longest id of a conversation.
const maxConversationID = 120

// ValidConversation reports whether id is an acceptable id of a conversation:
// [A-Za-z0-9._-]{1,120} (seed 002), and no name of a folder.
func ValidConversation(id ConversationID) bool {
	if len(id) == 0 || len(id) > maxConversationID || id == "." || id == ".." {
		return false
	}
	for i := 0; i < len(id); i++ {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// A RunState says what a conversation is doing.
type RunState string

const (
	RunIdle     RunState = "idle"     // nothing runs; a message may be sent
	RunRunning  RunState = "running"  // the coding agent works on a message
	RunAborting RunState = "aborting" // somebody has stopped it, and it is not over yet
)

// ChatParams are the params of OPEN for a conversation.
type ChatParams struct {
	SessionID      SessionID      `json:"session_id"`
	ConversationID ConversationID `json:"conversation_id"`
	// After is the last event that the relay has, of Epoch; nil: CHAT begins with
	// the present run, or with the next event if nothing runs.
	After *uint64 `json:"after,omitempty"`
	Epoch Epoch   `json:"epoch,omitempty"`
}

// ChatOpened is the result of OPENED for a conversation.
type ChatOpened struct {
	Epoch    Epoch     `json:"epoch"`
	FirstSeq uint64    `json:"first_seq"`     // of the oldest event that the log holds; LastSeq + 1: none
	From     uint64    `json:"from"`          // CHAT brings every event from this number on
	LastSeq  uint64    `json:"last_seq"`      // of the newest event at this moment, 0: none
	Gap      bool      `json:"gap,omitempty"` // After can't be served: events are missing before From
	State    ChatState `json:"state"`
	Lease    Lease     `json:"lease"` // who may send
}

// ChatReadParams are the params of OPEN for a part of a conversation's log.
type ChatReadParams struct {
	SessionID      SessionID      `json:"session_id"`
	ConversationID ConversationID `json:"conversation_id"`
	After          uint64         `json:"after"` // exclusive
	Until          uint64         `json:"until"` // inclusive
}

// ChatReadOpened is the result of OPENED for a part of a conversation's log.
type ChatReadOpened struct {
	Epoch    Epoch  `json:"epoch"`
	FirstSeq uint64 `json:"first_seq"`     // of the oldest event that the log holds
	Gap      bool   `json:"gap,omitempty"` // events after After are missing
}

// ChatNewsParams are the params of OPEN for the news of a session's
// conversations.
type ChatNewsParams struct {
	SessionID SessionID `json:"session_id"`
}

// ChatNewsOpened is the result of OPENED for the news of a session's
// conversations.
type ChatNewsOpened struct{}

// Chat carries a piece of an event of a conversation, as JSON that is sent to
// browsers as it is. The pieces of one event are consecutive; the last one has
// Left 0.
type Chat struct {
	Seq    uint64
	Left   int       // bytes that remain
	Origin CommandID // whose text this is: its sender's socket has shown it; empty for every other event
	Bytes  []byte    // 1…MaxChatPiece
}

func (Chat) FrameType() FrameType { return FrameChat }

func (m Chat) check() error {
	switch {
	case m.Seq == 0:
		return errors.New("no sequence number")
	case len(m.Bytes) == 0 || len(m.Bytes) > MaxChatPiece:
		return fmt.Errorf("%d bytes of an event", len(m.Bytes))
	case m.Left < 0 || m.Left > MaxChatEvent-len(m.Bytes):
		return fmt.Errorf("%d bytes remain", m.Left)
	case m.Origin != "" && !ValidID(m.Origin):
		return errors.New("the origin is not an id")
	}
	return nil
}

func (m Chat) appendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, m.Seq)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Left))
	dst = append(dst, byte(len(m.Origin)))
	dst = append(dst, m.Origin...)
	return append(dst, m.Bytes...)
}

func decodeChat(f Frame) (Message, error) {
	p := f.Payload
	if len(p) < chatHeaderBytes || len(p) < chatHeaderBytes+int(p[chatHeaderBytes-1]) {
		return nil, malformed(f.Type, errors.New("short"))
	}
	n := chatHeaderBytes + int(p[chatHeaderBytes-1])
	return Chat{
		Seq:    binary.BigEndian.Uint64(p),
		Left:   int(binary.BigEndian.Uint32(p[8:])),
		Origin: CommandID(p[chatHeaderBytes:n]),
		Bytes:  p[n:],
	}, nil
}

// ChatState is the state of a conversation. It comes before the event that it
// results in: a conversation is idle before its complete.
type ChatState struct {
	Run       RunState  `json:"run"`
	CommandID CommandID `json:"command_id,omitempty"` // that began the present run
	UserID    UserID    `json:"user_id,omitempty"`    // who did
	BeganAt   uint64    `json:"began_at,omitempty"`   // number of the present run's first event
	// ClientMessageID is the sender's own name of the message that began it.
	ClientMessageID string `json:"client_message_id,omitempty"`

	Provider    string    `json:"provider"`              // "claude", "codex", …
	Unsupported bool      `json:"unsupported,omitempty"` // this sandbox doesn't run the provider
	Pending     []Pending `json:"pending,omitempty"`     // open questions, oldest first
	Terminal    PTYID     `json:"terminal,omitempty"`    // where the conversation goes on: nothing can be sent
}

// A Pending is an open question of a coding agent (seed 002).
type Pending struct {
	RequestID  string          `json:"requestId"` // the approval's id
	ToolName   string          `json:"toolName"`
	Input      json.RawMessage `json:"input"` // null if it is too large; the event has it
	Context    json.RawMessage `json:"context,omitempty"`
	SessionID  ConversationID  `json:"sessionId"`
	ReceivedAt string          `json:"receivedAt"`          // ISO 8601
	ExpiresAt  string          `json:"expiresAt,omitempty"` // ISO 8601; absent: never
	Revision   uint64          `json:"revision"`            // of the approval
}

func (ChatState) FrameType() FrameType { return FrameChatState }

func (m ChatState) check() error {
	switch m.Run {
	case RunIdle, RunRunning, RunAborting:
		return nil
	}
	return fmt.Errorf("unknown run state %q", string(m.Run))
}

// ChatReset says that the conversation's log goes on under another epoch, and
// that older copies of its events must be dropped: they may hold what has become
// a secret. Numbers go on.
type ChatReset struct {
	Epoch    Epoch  `json:"epoch"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"` // of the last event before CHAT goes on
}

func (ChatReset) FrameType() FrameType { return FrameChatReset }
func (ChatReset) check() error         { return nil }

// ChatNews is what all sockets of a session are told: a session_upserted or a
// loading_progress (seed 002).
type ChatNews struct {
	ConversationID ConversationID  `json:"conversation_id,omitempty"`
	Message        json.RawMessage `json:"message"` // sent to browsers as it is
}

func (ChatNews) FrameType() FrameType { return FrameChatNews }

func (m ChatNews) check() error {
	if len(m.Message) == 0 {
		return errors.New("no message")
	}
	return nil
}
