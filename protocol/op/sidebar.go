package op

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// Kinds of operations on the side panel's chat (seed 000).
const (
	KindSidebarSend    = "sidebar.send"
	KindSidebarStop    = "sidebar.stop"
	KindSidebarClear   = "sidebar.clear"
	KindSidebarDismiss = "sidebar.dismiss"
	KindSidebarSwitch  = "sidebar.switch"
	KindSidebarNew     = "sidebar.new"
)

var sidebars = []Spec{
	{Kind: KindSidebarSend, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*SidebarSend)(nil)},
	{Kind: KindSidebarStop, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*SidebarStop)(nil)},
	{Kind: KindSidebarClear, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*SidebarClear)(nil)},
	{Kind: KindSidebarDismiss, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*SidebarDismiss)(nil)},
	{Kind: KindSidebarSwitch, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*SidebarSwitch)(nil)},
	{Kind: KindSidebarNew, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*Plain)(nil)},
}

const (
	// MaxSidebarMessage bounds a message of the side panel, in bytes: a command
	// carries it.
	MaxSidebarMessage = 24 << 10
	// MaxSidebarURL bounds the URL of a tab, in characters (seed 000).
	MaxSidebarURL = 2048
)

// What became of a question in the side panel's chat, which tool.decide answers.
const (
	QuestionAllowed   = "allowed"
	QuestionDenied    = "denied"
	QuestionTimeout   = "timeout"   // nobody answered in time: denied
	QuestionWithdrawn = "withdrawn" // its run was stopped, or is over
)

// SidebarSend is the body of sidebar.send: a message to the agent of one tab.
type SidebarSend struct {
	Message string `json:"message"`
	URL     string `json:"url,omitempty"`   // what the person looks at, http or https
	TabID   int64  `json:"tabId,omitempty"` // absent: the tab with that URL, else the active one
	// SenderName is the sender's display name, set by the control plane.
	SenderName string `json:"senderName,omitempty"`
}

// Check requires a message, and a URL without control characters.
func (b *SidebarSend) Check() error {
	switch {
	case strings.TrimSpace(b.Message) == "" || !utf8.ValidString(b.Message):
		return protocol.Errorf(protocol.KindInvalid, "op.message is empty")
	case len(b.Message) > MaxSidebarMessage:
		return protocol.Errorf(protocol.KindTooLarge, "op.message is longer than %d bytes", MaxSidebarMessage)
	case utf8.RuneCountInString(b.URL) > MaxSidebarURL || !utf8.ValidString(b.URL) || strings.ContainsFunc(b.URL, control):
		return protocol.Errorf(protocol.KindInvalid, "op.url is not the URL of a page")
	case b.URL != "" && !strings.HasPrefix(b.URL, "http://") && !strings.HasPrefix(b.URL, "https://"):
		return protocol.Errorf(protocol.KindInvalid, "op.url is not the URL of a page")
	}
	return checkTab(b.TabID, true)
}

// AskedBy refuses a display name.
func (b *SidebarSend) AskedBy(protocol.UserID) ([]protocol.Capability, error) {
	if b.SenderName != "" {
		return nil, protocol.Errorf(protocol.KindForbidden, "op.senderName is not yours to say")
	}
	return nil, nil
}

func control(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }

// checkTab refuses what is no id of a browser's tab: 1 to 2^31 - 1.
func checkTab(id int64, absent bool) error {
	if id == 0 && absent || 0 < id && id < 1<<31 {
		return nil
	}
	return protocol.Errorf(protocol.KindInvalid, "op.tabId is not the id of a tab")
}

// SidebarStop is the body of sidebar.stop: it stops what runs, and empties the
// queue, of one tab or of all.
type SidebarStop struct {
	TabID int64 `json:"tabId,omitempty"` // absent: all
	Kill  bool  `json:"kill,omitempty"`  // it was killed rather than stopped, people are told
}

// Check accepts a tab's id, and none.
func (b *SidebarStop) Check() error { return checkTab(b.TabID, true) }

// SidebarClear is the body of sidebar.clear: it forgets what was said.
type SidebarClear struct {
	TabID int64 `json:"tabId,omitempty"` // absent: in all tabs
}

// Check accepts a tab's id, and none.
func (b *SidebarClear) Check() error { return checkTab(b.TabID, true) }

// SidebarDismiss is the body of sidebar.dismiss: it takes one message out of a
// tab's queue.
type SidebarDismiss struct {
	Index int   `json:"index"`           // from 0
	TabID int64 `json:"tabId,omitempty"` // absent: the active one
}

// Check requires an index.
func (b *SidebarDismiss) Check() error {
	if b.Index < 0 || b.Index > 1<<10 {
		return protocol.Errorf(protocol.KindInvalid, "op.index is not that of a message")
	}
	return checkTab(b.TabID, true)
}

// SidebarSwitch is the body of sidebar.switch: it makes a tab the active one.
type SidebarSwitch struct {
	TabID int64 `json:"tabId"`
}

// Check requires a tab.
func (b *SidebarSwitch) Check() error { return checkTab(b.TabID, false) }

// A SidebarResult is what became of an operation on the side panel's chat.
type SidebarResult struct {
	Position       int             `json:"position,omitempty"`       // of sidebar.send: where the message waits, from 1; absent: it runs
	QueuedMessages int             `json:"queuedMessages,omitempty"` // of sidebar.stop: that waited, and were dropped
	ActiveTab      json.RawMessage `json:"activeTab,omitempty"`      // of sidebar.switch
	Session        json.RawMessage `json:"session,omitempty"`        // of sidebar.new
}
