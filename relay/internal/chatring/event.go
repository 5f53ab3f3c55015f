package chatring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// EventKinds are the kinds that an agent may have sent to clients as events,
// NewsKinds those it may have sent as news. All others are the relay's own: a
// sandbox must not send a browser to another relay.
var (
	EventKinds = kinds(protocol.ChatText, protocol.ChatStreamDelta, protocol.ChatStreamEnd, protocol.ChatThinking,
		protocol.ChatToolUse, protocol.ChatToolResult, protocol.ChatError, protocol.ChatStatus,
		protocol.ChatPermissionRequest, protocol.ChatPermissionCancelled, protocol.ChatComplete)
	NewsKinds = kinds(protocol.ChatSessionUpserted, protocol.ChatLoadingProgress)
)

// kinds returns a set.
func kinds(all ...protocol.ChatKind) map[protocol.ChatKind]bool {
	set := map[protocol.ChatKind]bool{}
	for _, k := range all {
		set[k] = true
	}
	return set
}

// CheckMessage refuses a message of an agent that is no JSON object in UTF-8 or of
// another kind.
func CheckMessage(message []byte, allowed map[protocol.ChatKind]bool) error {
	_, err := checked(message, allowed)
	return err
}

// checked is CheckMessage, and returns the kind.
func checked(message []byte, allowed map[protocol.ChatKind]bool) (protocol.ChatKind, error) {
	if !utf8.Valid(message) {
		return "", errors.New("chatring: a message is not UTF-8")
	}
	if !json.Valid(message) {
		return "", errors.New("chatring: a message is no JSON")
	}
	kind := protocol.ChatKind(kindOf(message))
	if !allowed[kind] {
		return "", fmt.Errorf("chatring: a message of kind %.40q", kind)
	}
	return kind, nil
}

// kindOf returns the member "kind" of a valid JSON text as a browser sees it: of
// the object itself, the last one of that very name. It is empty for what is no
// plain string, or if a name is written with escapes. A struct would take a member
// of another case for the same, and a map costs five times as much.
func kindOf(message []byte) (kind []byte) {
	depth, name, value := 0, []byte(nil), false // value: name is known, its value comes
	for i := 0; i < len(message); i++ {
		switch message[i] {
		case '"':
			text := stringAt(message[i:])
			i += len(text) - 1
			text = text[1 : len(text)-1]
			switch {
			case depth == 1 && !value && bytes.IndexByte(text, '\\') >= 0:
				return nil
			case depth == 1 && !value:
				name = text
			case depth == 1 && string(name) == "kind":
				kind = text
			}
		case ':':
			if value = depth == 1 || value; depth == 1 && string(name) == "kind" {
				kind = nil
			}
		case ',':
			value = value && depth != 1
		case '{':
			depth++
		case '[':
			if depth++; depth == 1 {
				return nil
			}
		case '}', ']':
			depth--
		}
	}
	return kind
}

// stringAt returns the JSON string with which valid begins.
func stringAt(valid []byte) []byte {
	for i := 1; i < len(valid); i++ {
		switch valid[i] {
		case '\\':
			i++
		case '"':
			return valid[:i+1]
		}
	}
	return valid
}

// An Event is one event of a conversation as sockets are sent it.
type Event struct {
	Seq    uint64
	Origin protocol.CommandID // whose socket isn't sent it; empty: all are
	Ends   bool               // it is the last one of its run
	Frame  []byte             // a WebSocket frame, never changed
}

// An Assembly is a partly received event. Its zero value is empty.
type Assembly struct {
	next  protocol.Chat // what the next piece must match, except for its Bytes
	bytes []byte
	begun bool
}

// Started reports whether some pieces of an event have come.
func (a *Assembly) Started() bool { return a.begun }

// Add takes the next piece; whole: it was the last one. It fails if the piece
// doesn't continue the event. It allocates only for what has come, whatever the
// first piece announces.
func (a *Assembly) Add(m protocol.Chat) (whole bool, err error) {
	left := m.Left + len(m.Bytes)
	if !a.begun {
		a.next, a.begun = protocol.Chat{Seq: m.Seq, Origin: m.Origin, Left: left}, true
	}
	if m.Seq != a.next.Seq || m.Origin != a.next.Origin || left != a.next.Left {
		return false, fmt.Errorf("chatring: a piece of event %d with %d bytes left, expected %d with %d", m.Seq, left, a.next.Seq, a.next.Left)
	}
	a.bytes = append(a.bytes, m.Bytes...)
	a.next.Left = m.Left
	return m.Left == 0, nil
}

// Take returns the whole event, framed for browsers, and empties the assembly. It
// fails if clients may not see the event.
func (a *Assembly) Take() (Event, error) {
	message, next := a.bytes, a.next
	*a = Assembly{}
	if cap(message) <= protocol.MaxChatPiece {
		a.bytes = message[:0] // the frame is a copy
	}
	kind, err := checked(message, EventKinds)
	if err != nil {
		return Event{}, err
	}
	return Event{next.Seq, next.Origin, kind == protocol.ChatComplete, replay.AppendTextFrame(make([]byte, 0, len(message)+10), message)}, nil
}
