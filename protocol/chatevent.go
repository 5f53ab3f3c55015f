package protocol

import "encoding/json"

// A ChatKind is the kind of a frame from the chat socket (seed 002).
type ChatKind string

// Kinds of events: what happened in a conversation's runs. Each has a number.
const (
	ChatText                ChatKind = "text"
	ChatStreamDelta         ChatKind = "stream_delta"
	ChatStreamEnd           ChatKind = "stream_end"
	ChatThinking            ChatKind = "thinking"
	ChatToolUse             ChatKind = "tool_use"
	ChatToolResult          ChatKind = "tool_result"
	ChatError               ChatKind = "error" // informational, a complete follows
	ChatStatus              ChatKind = "status"
	ChatPermissionRequest   ChatKind = "permission_request"
	ChatPermissionCancelled ChatKind = "permission_cancelled"
	ChatComplete            ChatKind = "complete" // the last one of its run, exactly one
)

// Kinds of the gateway: they have no number.
const (
	ChatSubscribedKind  ChatKind = "chat_subscribed"
	ChatSessionUpserted ChatKind = "session_upserted"
	ChatLoadingProgress ChatKind = "loading_progress"
	ChatProtocolError   ChatKind = "protocol_error"
)

// Kinds of our own, for clients that have said chat.hello.
const (
	ChatControlState ChatKind = "control_state"
	ChatPresenceKind ChatKind = "presence"
	ChatRunStateKind ChatKind = "run_state"
	ChatMovedKind    ChatKind = "moved"
)

// Reasons of permission_cancelled.
const (
	CancelledTimeout = "timeout"   // nobody decided in time: denied
	CancelledWith    = "cancelled" // its run was aborted or has ended
	CancelledDecided = "decided"   // somebody has decided
)

// A ChatEvent is one event of a conversation, or one row of its history. Which
// members it has depends on the kind (chat-and-shell.md A1). Events that live
// events and history have in common have the same ID.
type ChatEvent struct {
	ID        string         `json:"id"`
	SessionID ConversationID `json:"sessionId"`
	Timestamp string         `json:"timestamp"` // ISO 8601, UTC, milliseconds
	Provider  string         `json:"provider"`
	Kind      ChatKind       `json:"kind"`
	Seq       uint64         `json:"seq,omitempty"` // absent in history

	// text, stream_delta, thinking, tool_result, error
	Role    string      `json:"role,omitempty"` // "user", "assistant"
	Content *string     `json:"content,omitempty"`
	Images  []ChatImage `json:"images,omitempty"`
	From    *ChatFrom   `json:"from,omitempty"` // who sent a text of role user, or has answered

	ChatLocal // text, in history

	// tool_use and tool_result
	ToolName        string          `json:"toolName,omitempty"` // permission_request too
	ToolInput       json.RawMessage `json:"toolInput,omitempty"`
	ToolID          string          `json:"toolId,omitempty"`
	ToolResult      *ChatToolOutput `json:"toolResult,omitempty"` // tool_use
	ParentToolUseID string          `json:"parentToolUseId,omitempty"`
	IsError         *bool           `json:"isError,omitempty"`
	ToolUseResult   json.RawMessage `json:"toolUseResult,omitempty"`
	SubagentTools   json.RawMessage `json:"subagentTools,omitempty"` // in history

	// status
	Text         string       `json:"text,omitempty"`
	Tokens       *int64       `json:"tokens,omitempty"`
	CanInterrupt *bool        `json:"canInterrupt,omitempty"`
	TokenBudget  *TokenBudget `json:"tokenBudget,omitempty"`

	ChatQuestion // permission_request and permission_cancelled
	ChatEnd      // complete

	CommandID CommandID `json:"commandId,omitempty"` // text of role user, and complete: that began the run
	// ClientMessageID is the sender's own name of a text of role user.
	ClientMessageID string `json:"clientMessageId,omitempty"`
}

// ChatLocal says of a text that it belongs to a command of the coding agent's
// program itself, or sums up what was said before.
type ChatLocal struct {
	DisplayText          string `json:"displayText,omitempty"`
	CommandName          string `json:"commandName,omitempty"`
	CommandMessage       string `json:"commandMessage,omitempty"`
	CommandArgs          string `json:"commandArgs,omitempty"`
	IsLocalCommand       bool   `json:"isLocalCommand,omitempty"`
	IsLocalCommandStdout bool   `json:"isLocalCommandStdout,omitempty"`
	IsCompactSummary     bool   `json:"isCompactSummary,omitempty"`
}

// A ChatQuestion asks whether a tool may be used, or says why nobody needs to
// answer any more. The event's ToolName is the tool.
type ChatQuestion struct {
	RequestID string          `json:"requestId,omitempty"` // the approval's id
	Input     json.RawMessage `json:"input,omitempty"`
	Revision  uint64          `json:"revision,omitempty"`
	ExpiresAt string          `json:"expiresAt,omitempty"` // ISO 8601; absent: never
	Reason    string          `json:"reason,omitempty"`    // one of the reasons above
	Decision  Decision        `json:"decision,omitempty"`  // of what was decided; the event's From is who has
}

// A ChatEnd says how a run has ended.
type ChatEnd struct {
	ActualSessionID ConversationID `json:"actualSessionId,omitempty"`
	ExitCode        *int           `json:"exitCode,omitempty"` // 1 where it is unknown
	Success         *bool          `json:"success,omitempty"`  // exit code 0 and not aborted
	Aborted         *bool          `json:"aborted,omitempty"`
}

// A ChatFrom says who sent a message.
type ChatFrom struct {
	UserID  UserID  `json:"userId"`
	GrantID GrantID `json:"grantId,omitempty"` // under which it was sent
	Name    string  `json:"name,omitempty"`
}

// A ChatImage is an image of a message. Data is a data URL, or the URL of an
// asset.
type ChatImage struct {
	Name     string `json:"name,omitempty"`
	Data     string `json:"data"`
	Size     int64  `json:"size,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
}

// A ChatToolOutput is what a tool has returned.
type ChatToolOutput struct {
	Content       string          `json:"content"`
	IsError       bool            `json:"isError"`
	ToolUseResult json.RawMessage `json:"toolUseResult,omitempty"`
}

// A TokenBudget is the use of a model's context.
type TokenBudget struct {
	Used                int64          `json:"used"`
	Total               int64          `json:"total,omitempty"`
	InputTokens         int64          `json:"inputTokens"`
	OutputTokens        int64          `json:"outputTokens"`
	CacheReadTokens     int64          `json:"cacheReadTokens,omitempty"`
	CacheCreationTokens int64          `json:"cacheCreationTokens,omitempty"`
	Breakdown           TokenBreakdown `json:"breakdown"`
}

// A TokenBreakdown says what the tokens were used for.
type TokenBreakdown struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// A ChatMessage is what a person says to a coding agent.
type ChatMessage struct {
	Content string      `json:"content"`
	Images  []ChatImage `json:"images,omitempty"`
}

// A ChatCode is the code of a protocol_error (seed 002, and ours).
type ChatCode string

const (
	ChatSessionIDRequired   ChatCode = "SESSION_ID_REQUIRED"
	ChatSessionNotFound     ChatCode = "SESSION_NOT_FOUND"
	ChatForbidden           ChatCode = "FORBIDDEN" // ours
	ChatUnsupportedProvider ChatCode = "UNSUPPORTED_PROVIDER"
	ChatNotController       ChatCode = "NOT_CONTROLLER" // ours
	ChatRunInProgress       ChatCode = "RUN_IN_PROGRESS"
	ChatTooManyRuns         ChatCode = "TOO_MANY_RUNS" // ours
	ChatUnavailable         ChatCode = "UNAVAILABLE"   // ours
	ChatNoActiveRun         ChatCode = "NO_ACTIVE_RUN"
	ChatUnknownMessageType  ChatCode = "UNKNOWN_MESSAGE_TYPE"
	ChatInternalError       ChatCode = "INTERNAL_ERROR"
)

// A ChatFault is why a sandbox doesn't do what was asked of a conversation. It
// travels as an [Error], whose message begins with the code.
type ChatFault struct {
	Code ChatCode
	Text string
}

// kindOf is the kind of error that carries a code.
var kindOf = map[ChatCode]Kind{
	ChatSessionIDRequired: KindInvalid, ChatSessionNotFound: KindNotFound, ChatForbidden: KindForbidden,
	ChatUnsupportedProvider: KindUnsupported, ChatNotController: KindForbidden, ChatRunInProgress: KindConflict,
	ChatTooManyRuns: KindTooMany, ChatUnavailable: KindUnavailable, ChatNoActiveRun: KindConflict,
	ChatUnknownMessageType: KindInvalid, ChatInternalError: KindInvalid,
}

// Error returns the fault as an error of the code's kind.
func (f ChatFault) Error() *Error {
	return &Error{Kind: kindOf[f.Code], Message: string(f.Code) + ": " + f.Text}
}
