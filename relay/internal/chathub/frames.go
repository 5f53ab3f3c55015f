package chathub

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// Frames to clients that the relay makes itself. Kinds are those of protocol.

// A subscribed answers chat.subscribe (seed 002). The last three members are ours.
type subscribed struct {
	Kind       protocol.ChatKind       `json:"kind"`
	SessionID  protocol.ConversationID `json:"sessionId"`
	Processing bool                    `json:"isProcessing"`
	LastSeq    uint64                  `json:"lastSeq"`
	Pending    []protocol.Pending      `json:"pendingPermissions"`
	Timestamp  string                  `json:"timestamp"`
	Epoch      *protocol.Epoch         `json:"epoch,omitempty"`
	FirstSeq   uint64                  `json:"firstSeq"`
	Gap        bool                    `json:"gap,omitempty"`
}

// idle is what a conversation that the sandbox doesn't have looks like.
func idle(c protocol.ConversationID, gap bool) subscribed {
	return subscribed{Kind: protocol.ChatSubscribedKind, SessionID: c, FirstSeq: 1, Gap: gap}
}

// frame returns m as a WebSocket frame.
func (m subscribed) frame() []byte {
	if m.Pending == nil {
		m.Pending = []protocol.Pending{}
	}
	m.Timestamp = chatsocket.Time(time.Now())
	return frameOf(m)
}

type controlState struct {
	Kind       protocol.ChatKind       `json:"kind"`
	SessionID  protocol.ConversationID `json:"sessionId"`
	Controller protocol.UserID         `json:"controller"` // "": nobody
	Requests   []protocol.UserID       `json:"requests"`
	State      protocol.LeaseState     `json:"state"`
	MSLeft     int64                   `json:"ms_left"` // of the grace
	You        protocol.UserID         `json:"you"`
	CanControl bool                    `json:"can_control"`
}

type presenceMessage struct {
	Kind      protocol.ChatKind        `json:"kind"`
	SessionID protocol.ConversationID  `json:"sessionId"`
	Count     int                      `json:"count"`
	Viewers   []protocol.PresentViewer `json:"viewers"`
}

type runState struct {
	Kind      protocol.ChatKind       `json:"kind"`
	SessionID protocol.ConversationID `json:"sessionId"`
	State     protocol.RunState       `json:"state"`
	CommandID protocol.CommandID      `json:"commandId,omitempty"`
	Terminal  protocol.PTYID          `json:"terminal,omitempty"` // where the conversation goes on
}

type moved struct {
	Kind   protocol.ChatKind `json:"kind"`
	Origin string            `json:"origin"`
}

// frameOf returns v, which encoding can't fail for, as a WebSocket text frame.
func frameOf(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("chathub: " + err.Error()) // raw members were checked when they came
	}
	return replay.AppendTextFrame(make([]byte, 0, len(data)+10), data)
}
