package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// A Message is the content of one frame.
type Message interface {
	// FrameType returns the type of the frame that carries the message.
	FrameType() FrameType
	// check reports what is wrong with the message's fields.
	check() error
}

// A binaryMessage has a layout of its own; every other message is JSON.
type binaryMessage interface {
	Message
	appendPayload(dst []byte) []byte
}

// Append appends the frame of m to dst. It fails when m's fields are out of
// range or its payload exceeds [MaxFramePayload].
func Append(dst []byte, m Message) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, malformed(m.FrameType(), err)
	}
	var payload []byte
	if b, ok := m.(binaryMessage); ok {
		payload = b.appendPayload(nil)
	} else {
		var err error
		if payload, err = json.Marshal(m); err != nil {
			return dst, malformed(m.FrameType(), err)
		}
	}
	return AppendFrame(dst, m.FrameType(), payload)
}

// Write writes the frame of m to w in one call.
func Write(w io.Writer, m Message) error {
	buf, err := Append(nil, m)
	if err != nil {
		return err
	}
	_, err = w.Write(buf)
	return err
}

// Decode returns the message in f. Byte slices of DATA and INPUT alias f's
// payload. It fails with an error that wraps [ErrMessage], or with
// [ErrFrameUnknown].
func Decode(f Frame) (Message, error) {
	m, err := decode(f)
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, malformed(f.Type, err)
	}
	return m, nil
}

func decode(f Frame) (Message, error) {
	switch f.Type {
	case FrameChallenge:
		return decodeJSON[Challenge](f)
	case FrameHello:
		return decodeJSON[Hello](f)
	case FrameWelcome:
		return decodeJSON[Welcome](f)
	case FrameRefused:
		return decodeJSON[Refused](f)
	case FramePing:
		id, err := decodePing(f)
		return Ping{id}, err
	case FramePong:
		id, err := decodePing(f)
		return Pong{id}, err
	case FrameRole:
		return decodeJSON[Role](f)
	case FrameLane:
		return decodeJSON[LaneRequest](f)
	case FrameGoAway:
		return decodeJSON[GoAway](f)
	case FrameStatus:
		return decodeJSON[Status](f)
	case FrameOpen:
		return decodeJSON[Open](f)
	case FrameOpened:
		return decodeJSON[Opened](f)
	case FrameResult:
		return decodeJSON[Result](f)
	case FrameApproval:
		return decodeJSON[ApprovalEvent](f)
	}
	return decodeTerminal(f)
}

func decodeTerminal(f Frame) (Message, error) {
	switch f.Type {
	case FrameData:
		return decodeData(f)
	case FrameInput:
		return decodeInput(f)
	case FrameInputAck:
		return decodeInputAck(f)
	case FrameResize:
		return decodeResize(f)
	case FrameResized:
		return decodeJSON[Resized](f)
	case FrameExited:
		return decodeJSON[Exited](f)
	case FrameReset:
		return decodeJSON[Reset](f)
	case FrameInputRefused:
		return decodeJSON[InputRefused](f)
	case FrameLease:
		return decodeJSON[LeaseProposal](f)
	case FrameLeased:
		return decodeJSON[Leased](f)
	case FrameGrant:
		return decodeJSON[GrantAdd](f)
	case FrameUngrant:
		return decodeJSON[GrantDrop](f)
	case FrameGranted:
		return decodeJSON[Granted](f)
	case FrameHolder:
		return decodeJSON[Holder](f)
	case FrameWantKeyframe:
		return decodeJSON[WantKeyframe](f)
	case FrameKeyframe:
		return decodeKeyframe(f)
	case FramePace:
		return decodeJSON[Pace](f)
	case FrameRecording:
		return decodeJSON[Recording](f)
	case FrameAgent:
		return decodeJSON[AgentReport](f)
	case FrameHeld:
		return decodeJSON[Held](f)
	case FrameAgentTurn:
		return decodeJSON[AgentTurn](f)
	case FrameTools:
		return decodeJSON[ToolsChanged](f)
	case FrameShared:
		return decodeJSON[Shared](f)
	case FrameTerminals:
		return decodeJSON[TerminalsChanged](f)
	}
	return nil, fmt.Errorf("%w: %s", ErrFrameUnknown, f.Type)
}

// decodeJSON decodes one JSON object. Unknown members are ignored, so that a
// newer peer can add some.
func decodeJSON[M Message](f Frame) (Message, error) {
	var m M
	if err := UnmarshalObject(f.Payload, &m); err != nil {
		return nil, malformed(f.Type, err)
	}
	return m, nil
}

// UnmarshalObject decodes data, which must be one JSON object in valid UTF-8.
func UnmarshalObject(data []byte, v any) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("not UTF-8")
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("not a JSON object")
	}
	return json.Unmarshal(data, v)
}

func malformed(t FrameType, err error) error { return fmt.Errorf("%w: %s: %v", ErrMessage, t, err) }
