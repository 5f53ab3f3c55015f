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

// A binaryMessage has its own layout; every other message is JSON.
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
	if b, ok := m.(binaryMessage); ok { // its payload is laid out where it stays
		return endFrame(b.appendPayload(beginFrame(dst, m.FrameType())), len(dst))
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return dst, malformed(m.FrameType(), err)
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

// Decode returns the message in f. Byte slices of binary messages alias f's
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
	if c := codecs[f.Type]; c != nil {
		return c.decode(f)
	}
	return nil, fmt.Errorf("%w: %s", ErrFrameUnknown, f.Type)
}

// A codec decodes the frames of one type.
type codec interface {
	decode(f Frame) (Message, error)
}

// asBinary decodes a binary layout.
type asBinary func(f Frame) (Message, error)

func (decode asBinary) decode(f Frame) (Message, error) { return decode(f) }

// asJSON decodes one JSON object. It ignores unknown members, so that newer
// peers can add some.
type asJSON[M Message] struct{}

func (asJSON[M]) decode(f Frame) (Message, error) {
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
