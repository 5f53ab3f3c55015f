package op

import (
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// Kinds of operations on conversations with coding agents.
const (
	KindChatCreate = "chat.create"
	KindChatSend   = "chat.send"
	KindChatAbort  = "chat.abort"
	KindToolDecide = "tool.decide"
)

var chats = []Spec{
	{Kind: KindChatCreate, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*ChatCreate)(nil)},
	{Kind: KindChatSend, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*ChatSend)(nil)},
	{Kind: KindChatAbort, Needs: protocol.CapChat, Target: TargetSession, Lane: LaneFree, Body: (*ChatAbort)(nil)},
	{Kind: KindToolDecide, Needs: protocol.CapApprove, Target: TargetSession, Lane: LaneFree, Body: (*ToolDecide)(nil)},
}

// Bounds of members, in bytes.
const (
	maxProvider = 64
	maxPath     = 4096
	maxTitle    = 500 // seed 002
	maxModel    = 128
	maxTools    = 128 // entries of a list
	maxTool     = 512 // of one entry
)

// ChatCreate is the body of chat.create.
type ChatCreate struct {
	Conversation protocol.ConversationID `json:"conversation,omitempty"` // proposed; absent: the sandbox makes a UUID
	Provider     string                  `json:"provider"`
	ProjectPath  string                  `json:"projectPath"` // in or below the workspace
	Title        string                  `json:"title,omitempty"`
}

// Check requires a provider and a path. The sandbox knows which ones exist.
func (b *ChatCreate) Check() error {
	switch {
	case b.Conversation != "" && !protocol.ValidConversation(b.Conversation):
		return protocol.Errorf(protocol.KindInvalid, "op.conversation is not an id")
	case b.Provider == "" || len(b.Provider) > maxProvider:
		return protocol.Errorf(protocol.KindInvalid, "op.provider must be 1 to %d bytes", maxProvider)
	case b.ProjectPath == "" || len(b.ProjectPath) > maxPath:
		return protocol.Errorf(protocol.KindInvalid, "op.projectPath must be 1 to %d bytes", maxPath)
	case len(b.Title) > maxTitle:
		return protocol.Errorf(protocol.KindInvalid, "op.title is longer than %d bytes", maxTitle)
	}
	return nil
}

// ChatSend is the body of chat.send: one message, by value or by the SHA-256 of
// its JSON, which was put into the sandbox before.
type ChatSend struct {
	Conversation  protocol.ConversationID `json:"conversation"`
	Message       *protocol.ChatMessage   `json:"message,omitempty"`
	MessageSHA256 string                  `json:"messageSha256,omitempty"` // hexadecimal
	// SenderName is the sender's display name, set by the control plane.
	SenderName string `json:"senderName,omitempty"`
	// ClientMessageID is the sender's own name of the message.
	ClientMessageID string      `json:"clientMessageId,omitempty"`
	Options         ChatOptions `json:"options,omitzero"`
}

// ChatOptions say how a coding agent works on a message.
type ChatOptions struct {
	Model           string   `json:"model,omitempty"`
	PermissionMode  string   `json:"permissionMode,omitempty"` // one of the provider's; absent: its default
	Cwd             string   `json:"cwd,omitempty"`            // in or below the workspace; absent: the project's path
	AllowedTools    []string `json:"allowedTools,omitempty"`   // used without a question
	DisallowedTools []string `json:"disallowedTools,omitempty"`
	SkipPermissions bool     `json:"skipPermissions,omitempty"` // no questions at all
}

// BypassPermissions is the permission mode without questions.
const BypassPermissions = "bypassPermissions"

// Lifts reports whether o lets tools be used without a question.
func (o ChatOptions) Lifts() bool {
	return o.SkipPermissions || o.PermissionMode == BypassPermissions || len(o.AllowedTools) > 0
}

func (o ChatOptions) check() error {
	switch {
	case len(o.Model) > maxModel, len(o.PermissionMode) > maxModel, len(o.Cwd) > maxPath:
		return protocol.Errorf(protocol.KindInvalid, "op.options has a member that is too long")
	case len(o.AllowedTools) > maxTools || len(o.DisallowedTools) > maxTools:
		return protocol.Errorf(protocol.KindInvalid, "op.options names more than %d tools", maxTools)
	}
	for _, list := range [][]string{o.AllowedTools, o.DisallowedTools} {
		for _, tool := range list {
			if tool == "" || len(tool) > maxTool {
				return protocol.Errorf(protocol.KindInvalid, "op.options: a tool must be 1 to %d bytes", maxTool)
			}
		}
	}
	return nil
}

// Check requires a conversation, and a message in one of the two forms.
func (b *ChatSend) Check() error {
	if !protocol.ValidConversation(b.Conversation) {
		return protocol.Errorf(protocol.KindInvalid, "op.conversation is not an id")
	}
	if utf8.RuneCountInString(b.ClientMessageID) > protocol.MaxClientMessageID {
		return protocol.Errorf(protocol.KindInvalid, "op.clientMessageId is longer than %d characters", protocol.MaxClientMessageID)
	}
	switch sum, err := hex.DecodeString(b.MessageSHA256); {
	case (b.Message == nil) == (b.MessageSHA256 == ""):
		return protocol.Errorf(protocol.KindInvalid, "either op.message or op.messageSha256 is needed")
	case b.Message == nil && (err != nil || len(sum) != 32):
		return protocol.Errorf(protocol.KindInvalid, "op.messageSha256 is not a SHA-256")
	case b.Message != nil && !utf8.ValidString(b.Message.Content):
		return protocol.Errorf(protocol.KindInvalid, "op.message is not UTF-8")
	}
	return b.Options.check()
}

// AskedBy refuses a display name. Whoever lifts questions needs the capability
// approve.
func (b *ChatSend) AskedBy(protocol.UserID) ([]protocol.Capability, error) {
	if b.SenderName != "" {
		return nil, protocol.Errorf(protocol.KindForbidden, "op.senderName is not yours to say")
	}
	if b.Options.Lifts() {
		return []protocol.Capability{protocol.CapApprove}, nil
	}
	return nil, nil
}

// ChatAbort is the body of chat.abort.
type ChatAbort struct {
	Conversation protocol.ConversationID `json:"conversation"`
}

// Check requires a conversation.
func (b *ChatAbort) Check() error {
	if !protocol.ValidConversation(b.Conversation) {
		return protocol.Errorf(protocol.KindInvalid, "op.conversation is not an id")
	}
	return nil
}

// ToolDecide is the body of tool.decide: it answers a coding agent's question.
type ToolDecide struct {
	Approval string `json:"approval"`
	Revision uint64 `json:"revision"` // of the approval as it was shown
	// Decision is allow_once, deny, or allow_always: then Remember, or else the
	// tool, is also a rule of the session.
	Decision     protocol.Decision `json:"decision"`
	UpdatedInput json.RawMessage   `json:"updatedInput,omitempty"` // what the tool gets instead; an object
	Message      string            `json:"message,omitempty"`      // of a denial, for the coding agent
	// Remember is a tool, or Bash(prefix:*): its further uses in this run need no
	// question.
	Remember string `json:"remember,omitempty"`
}

// Bounds of an answer, in bytes. A command holds one.
const (
	maxUpdatedInput  = 32 << 10
	maxDenialMessage = 4 << 10
)

// Check requires an approval and a decision that fits its other members.
func (b *ToolDecide) Check() error {
	switch {
	case !protocol.ValidID(b.Approval) || b.Revision == 0:
		return protocol.Errorf(protocol.KindInvalid, "op.approval must be an id, op.revision that of the approval as it was shown")
	case b.Decision != protocol.AllowOnce && b.Decision != protocol.AllowAlways && b.Decision != protocol.Deny:
		return protocol.Errorf(protocol.KindInvalid, "decision: allow_once, allow_always or deny")
	case len(b.UpdatedInput) > maxUpdatedInput || len(b.Message) > maxDenialMessage || len(b.Remember) > maxTool:
		return protocol.Errorf(protocol.KindTooLarge, "op.updatedInput, op.message or op.remember is too long")
	case len(b.UpdatedInput) > 0 && b.UpdatedInput[0] != '{':
		return protocol.Errorf(protocol.KindInvalid, "op.updatedInput must be an object")
	case b.Decision == protocol.Deny && (len(b.UpdatedInput) > 0 || b.Remember != ""):
		return protocol.Errorf(protocol.KindInvalid, "a denial has no op.updatedInput or op.remember")
	case b.Decision != protocol.Deny && b.Message != "":
		return protocol.Errorf(protocol.KindInvalid, "only a denial has op.message")
	}
	return nil
}
