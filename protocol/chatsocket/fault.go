package chatsocket

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// texts are the texts of the codes (seed 002, and ours), around what they are
// about: the type of the request for the first two, a provider, or a session.
var texts = map[protocol.ChatCode][2]string{
	protocol.ChatSessionIDRequired:   {"", " requires a sessionId."},
	protocol.ChatUnknownMessageType:  {`Unknown message type "`, `".`},
	protocol.ChatUnsupportedProvider: {`Provider "`, `" is not available.`},
	protocol.ChatSessionNotFound:     {`Session "`, `" was not found. Create it via POST /api/providers/sessions first.`},
	protocol.ChatForbidden:           {`This is not allowed in session "`, `".`},
	protocol.ChatNotController:       {`Somebody else controls session "`, `".`},
	protocol.ChatRunInProgress:       {`Session "`, `" already has a run in progress.`},
	protocol.ChatTooManyRuns:         {`Session "`, `" must wait: too many runs are in progress.`},
	protocol.ChatUnavailable:         {`Session "`, `" is not available now. Try again later.`},
	protocol.ChatNoActiveRun:         {`Session "`, `" has no active run.`},
	protocol.ChatInternalError:       {"Invalid websocket payload", ""},
}

// Sentence returns an error's message as a sentence, as the texts are.
func Sentence(message string) string {
	if message == "" {
		return ""
	}
	return strings.ToUpper(message[:1]) + message[1:] + "."
}

// maxSubject bounds what a text quotes, in bytes.
const maxSubject = 128

// NewFault returns the fault of a code with its text. What it is about is
// the type of the request (SESSION_ID_REQUIRED, UNKNOWN_MESSAGE_TYPE), a provider
// (UNSUPPORTED_PROVIDER), nothing (INTERNAL_ERROR), or else a session.
func NewFault(code protocol.ChatCode, about string) protocol.ChatFault {
	text := texts[code]
	if code == protocol.ChatInternalError {
		about = ""
	}
	return protocol.ChatFault{Code: code, Text: text[0] + cut(about, maxSubject) + text[1]}
}

// cut returns at most the first n bytes of s, without half a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ParseFault returns the fault that err carries, if it carries one.
func ParseFault(err error) (protocol.ChatFault, bool) {
	if err == nil {
		return protocol.ChatFault{}, false
	}
	code, text, found := strings.Cut(protocol.AsError(err).Error(), ": ")
	if _, known := texts[protocol.ChatCode(code)]; !found || !known {
		return protocol.ChatFault{}, false
	}
	return protocol.ChatFault{Code: protocol.ChatCode(code), Text: text}, true
}

// An ErrorFrame tells a browser why a request was refused.
type ErrorFrame struct {
	Kind      protocol.ChatKind        `json:"kind"` // protocol.ChatProtocolError
	Code      protocol.ChatCode        `json:"code"`
	Error     string                   `json:"error"`
	SessionID *protocol.ConversationID `json:"sessionId"` // null: it concerns no run
	Timestamp string                   `json:"timestamp"`
	// ClientMessageID is that of the refused chat.send, if it has one.
	ClientMessageID string `json:"clientMessageId,omitempty"`
}

// Frame returns the frame for a fault at a time. A web client ends its wait for
// the session that the frame names; none, "", is right for what concerns no run.
func Frame(f protocol.ChatFault, session protocol.ConversationID, at time.Time) ErrorFrame {
	frame := ErrorFrame{Kind: protocol.ChatProtocolError, Code: f.Code, Error: f.Text, Timestamp: Time(at)}
	if session != "" {
		frame.SessionID = new(protocol.ConversationID(cut(string(session), maxSubject)))
	}
	return frame
}

// Time returns a time as frames to browsers have it: ISO 8601 in UTC, with
// milliseconds.
func Time(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
