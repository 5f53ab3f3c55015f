// Package chatsocket is the browser's side of chat on the wire (seed 002): what a
// browser sends on the chat socket, and why it is refused.
package chatsocket

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// Types of the frames that a browser sends on the chat socket (seed 002).
const (
	TypeSend       = "chat.send"                // sessionId, content, options, clientMessageId
	TypeAbort      = "chat.abort"               // sessionId
	TypeSubscribe  = "chat.subscribe"           // sessions
	TypePermission = "chat.permission-response" // requestId, allow, updatedInput, message, rememberEntry, remember
)

// Types of our own.
const (
	TypeHello          = "chat.hello"           // features
	TypeRequestControl = "chat.request_control" // sessionId
	TypeGrantControl   = "chat.grant_control"   // sessionId, to
	TypeRevokeControl  = "chat.revoke_control"  // sessionId
	TypeReauth         = "chat.reauth"          // grant
)

// Features of chat.hello. A client that names one gets what the seed doesn't have.
const (
	FeatureControl  = "control"  // control_state
	FeaturePresence = "presence" // presence
	FeatureRuns     = "runs"     // run_state
	FeatureEcho     = "echo"     // its own messages come back to it as events, too
	FeatureMoved    = "moved"    // moved
)

// RememberSession as the member remember of chat.permission-response: the answer
// is a rule of the whole session too.
const RememberSession = "session"

// maxFeatures bounds the features of one chat.hello.
const maxFeatures = 32

// A Request is a frame from a browser on the chat socket, with the members
// that its type has. Members of another type than expected count as absent.
type Request struct {
	Type      string                  // empty: absent or no string
	SessionID protocol.ConversationID // without the space around it; not checked any further

	// chat.send
	Content string
	Images  []protocol.ChatImage
	Options Options
	// ClientMessageID is the sender's own name of the message, at most
	// protocol.MaxClientMessageID characters.
	ClientMessageID string

	// chat.subscribe
	Sessions []Mark
	Ignored  int // entries beyond protocol.MaxChatFollowed

	// chat.permission-response
	RequestID    string
	Allow        bool
	UpdatedInput json.RawMessage // an object, or nil
	Message      string
	Remember     string // rememberEntry: a tool, or Bash(prefix:*)
	ForSession   bool   // remember is RememberSession

	Features []string        // chat.hello
	To       protocol.UserID // chat.grant_control
	Grant    string          // chat.reauth
}

// Options say how a coding agent is to work on a message.
type Options struct {
	Model           string
	PermissionMode  string
	Cwd             string
	AllowedTools    []string
	DisallowedTools []string
	SkipPermissions bool
}

// A Mark says what a browser has seen of a conversation.
type Mark struct {
	SessionID protocol.ConversationID
	LastSeq   uint64 // 0: nothing
}

// Decode decodes a frame from a browser on the chat socket. Like the seed it is
// lenient about members, and strict about the whole: it fails for what is no JSON
// object in UTF-8, and for a clientMessageId that is too long. The request then
// has the session that it names, if it names one. Errors are faults: see
// [ParseFault].
func Decode(data []byte) (Request, error) {
	var in members
	if !utf8.Valid(data) || json.Unmarshal(data, &in) != nil || in == nil {
		return Request{}, NewFault(protocol.ChatInternalError, "").Error()
	}
	q := Request{Type: in.text("type"), SessionID: protocol.ConversationID(strings.TrimSpace(in.text("sessionId")))}
	switch q.Type {
	case TypeSend:
		q.Content = in.text("content")
		q.ClientMessageID = in.text("clientMessageId")
		options := in.object("options")
		q.Images, q.Options = options.images(), options.options()
		if utf8.RuneCountInString(q.ClientMessageID) > protocol.MaxClientMessageID {
			fault := protocol.ChatFault{Code: protocol.ChatInternalError, Text: "clientMessageId is longer than " + strconv.Itoa(protocol.MaxClientMessageID) + " characters."}
			return Request{Type: q.Type, SessionID: q.SessionID}, fault.Error()
		}
	case TypeSubscribe:
		q.Sessions, q.Ignored = in.marks()
	case TypePermission:
		q.RequestID = strings.TrimSpace(in.text("requestId"))
		q.Allow, q.Message = in.truthy("allow"), in.text("message")
		q.Remember, q.ForSession = strings.TrimSpace(in.text("rememberEntry")), in.text("remember") == RememberSession
		if updated := in["updatedInput"]; len(updated) > 0 && updated[0] == '{' {
			q.UpdatedInput = updated
		}
	case TypeHello:
		q.Features = in.texts("features", maxFeatures)
	case TypeGrantControl:
		q.To = protocol.UserID(in.text("to"))
	case TypeReauth:
		q.Grant = in.text("grant")
	}
	return q, nil
}

// members are the members of an object of a browser's frame, by their exact
// names. Of two with one name the last counts, as in a browser.
type members map[string]json.RawMessage

// text returns a member that is a string, else "".
func (m members) text(name string) string {
	var s string
	if raw := m[name]; len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// object returns a member that is an object, else nil.
func (m members) object(name string) members {
	var inner members
	if raw := m[name]; len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &inner) != nil {
		return nil
	}
	return inner
}

// elements returns the elements of a member that is an array, else nil.
func (m members) elements(name string) []json.RawMessage {
	var elements []json.RawMessage
	if raw := m[name]; len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &elements) != nil {
		return nil
	}
	return elements
}

// texts returns the strings of a member that is an array, without empty ones and
// at most most.
func (m members) texts(name string, most int) (texts []string) {
	for _, raw := range m.elements(name) {
		if s := (members{"": raw}).text(""); s != "" && len(texts) < most {
			texts = append(texts, s)
		}
	}
	return texts
}

// number returns a finite member that is a number, else 0.
func (m members) number(name string) float64 {
	var n float64
	if json.Unmarshal(m[name], &n) != nil {
		return 0
	}
	return n
}

// truthy reports whether JavaScript takes a member for true.
func (m members) truthy(name string) bool {
	raw := m[name]
	switch {
	case len(raw) == 0, string(raw) == "null", string(raw) == "false", string(raw) == `""`:
		return false
	case raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9':
		n, _ := strconv.ParseFloat(string(raw), 64) // infinite if it is out of range
		return n != 0
	}
	return true
}

// maxImages bounds the images of one message: more don't fit into a frame in
// any useful size.
const maxImages = 64

// images returns the images among the options of chat.send.
func (m members) images() (images []protocol.ChatImage) {
	for _, raw := range m.elements("images") {
		entry := (members{"": raw}).object("")
		image := protocol.ChatImage{Name: entry.text("name"), Data: entry.text("data"), MimeType: entry.text("mimeType")}
		if size := entry.number("size"); size > 0 && size < 1<<53 {
			image.Size = int64(size)
		}
		if image.Data != "" && len(images) < maxImages {
			images = append(images, image)
		}
	}
	return images
}

// options returns the options of chat.send. Lists of tools come in
// toolsSettings.
func (m members) options() Options {
	const most = math.MaxInt // the operation has its own bound
	tools := m.object("toolsSettings")
	return Options{
		Model: strings.TrimSpace(m.text("model")), PermissionMode: strings.TrimSpace(m.text("permissionMode")), Cwd: m.text("cwd"),
		AllowedTools: tools.texts("allowedTools", most), DisallowedTools: tools.texts("disallowedTools", most),
		SkipPermissions: m.truthy("skipPermissions") || tools.truthy("skipPermissions"),
	}
}

// marks returns the entries of chat.subscribe, without bad ones and those beyond
// protocol.MaxChatFollowed, and how many of the latter there are.
func (m members) marks() (marks []Mark, ignored int) {
	for i, raw := range m.elements("sessions") {
		if i >= protocol.MaxChatFollowed {
			ignored++
			continue
		}
		entry := (members{"": raw}).object("")
		if id := strings.TrimSpace(entry.text("sessionId")); id != "" {
			marks = append(marks, Mark{protocol.ConversationID(id), seqOf(entry.number("lastSeq"))})
		}
	}
	return marks, ignored
}

// seqOf returns the number of an event as a browser says it: a whole one, and not
// below 0.
func seqOf(n float64) uint64 {
	switch {
	case n < 1:
		return 0
	case n >= math.MaxInt64:
		return math.MaxInt64
	}
	return uint64(n)
}
