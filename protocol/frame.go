package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A FrameType says what a frame's payload is. Types from 0x80 may be skipped
// by a reader that doesn't know them; any other unknown type is an error.
type FrameType uint8

// Frames of the control stream.
const (
	FrameChallenge FrameType = 0x01 // JSON Challenge: relay → agent, first
	FrameHello     FrameType = 0x02 // JSON Hello: agent → relay, answers CHALLENGE
	FrameWelcome   FrameType = 0x03 // JSON Welcome: relay → agent, answers HELLO
	FrameRefused   FrameType = 0x04 // JSON Refused: answers HELLO or OPEN; nothing follows
	FramePing      FrameType = 0x05 // 8 B opaque: both ways
	FramePong      FrameType = 0x06 // 8 B echoed: both ways
	FrameRole      FrameType = 0x07 // JSON Role: agent → relay
	FrameLane      FrameType = 0x08 // JSON LaneRequest: relay → agent
	FrameGoAway    FrameType = 0x09 // JSON GoAway: both ways
	FrameStatus    FrameType = 0x80 // JSON Status: agent → relay
)

// Frames of every stream.
const (
	FrameOpen   FrameType = 0x10 // JSON Open: first frame of a stream
	FrameOpened FrameType = 0x11 // JSON Opened: answers OPEN
)

// Frames of a terminal stream.
const (
	FrameData         FrameType = 0x20 // 8 B offset, 1…n B output: agent → relay
	FrameResized      FrameType = 0x21 // JSON Resized: agent → relay
	FrameExited       FrameType = 0x22 // JSON Exited: agent → relay, last
	FrameReset        FrameType = 0x23 // JSON Reset: agent → relay
	FrameInput        FrameType = 0x24 // 8 B term, 8 B seq, 1 B n, n B client, 1…n B input: relay → agent
	FrameInputAck     FrameType = 0x25 // 8 B seq, 1…64 B client: agent → relay
	FrameInputRefused FrameType = 0x26 // JSON InputRefused: agent → relay
	FrameResize       FrameType = 0x27 // 8 B term, 2 B columns, 2 B rows: relay → agent
	FrameLease        FrameType = 0x28 // JSON LeaseProposal: relay → agent
	FrameLeased       FrameType = 0x29 // JSON Leased: agent → relay
	FrameGrant        FrameType = 0x2a // JSON GrantAdd: relay → agent
	FrameUngrant      FrameType = 0x2b // JSON GrantDrop: relay → agent
	FrameGranted      FrameType = 0x2c // JSON Granted: agent → relay
	FrameHolder       FrameType = 0x2d // JSON Holder: relay → agent
	FrameWantKeyframe FrameType = 0x40 // JSON WantKeyframe: relay → agent
	FrameKeyframe     FrameType = 0x41 // 8 B offset, 1 B history, 4 B left, 1…n B screen: agent → relay
	FramePace         FrameType = 0x42 // JSON Pace: relay → agent
	FrameRecording    FrameType = 0x43 // JSON Recording: agent → relay
	FrameAgent        FrameType = 0x44 // JSON AgentReport: agent → relay
	FrameHeld         FrameType = 0x45 // JSON Held: agent → relay
	FrameAgentTurn    FrameType = 0x46 // JSON AgentTurn: agent → relay
	FrameTools        FrameType = 0x47 // JSON ToolsChanged: agent → relay
	FrameShared       FrameType = 0x81 // JSON Shared: agent → relay
	FrameTerminals    FrameType = 0x82 // JSON TerminalsChanged: agent → relay
)

// Frames of a command stream.
const (
	FrameResult FrameType = 0x30 // JSON Result: agent → relay, last
)

// Frames of an approval stream.
const (
	FrameApproval FrameType = 0x50 // JSON ApprovalEvent: agent → relay
)

// frameTypes names every frame type; README.md's table is compared with it.
var frameTypes = map[FrameType]string{
	FrameChallenge: "CHALLENGE", FrameHello: "HELLO", FrameWelcome: "WELCOME",
	FrameRefused: "REFUSED", FramePing: "PING", FramePong: "PONG",
	FrameRole: "ROLE", FrameLane: "LANE", FrameGoAway: "GOAWAY", FrameStatus: "STATUS",
	FrameOpen: "OPEN", FrameOpened: "OPENED",
	FrameData: "DATA", FrameResized: "RESIZED", FrameExited: "EXITED",
	FrameReset: "RESET", FrameInput: "INPUT", FrameInputAck: "INPUT_ACK",
	FrameInputRefused: "INPUT_REFUSED", FrameResize: "RESIZE",
	FrameLease: "LEASE", FrameLeased: "LEASED", FrameGrant: "GRANT",
	FrameUngrant: "UNGRANT", FrameGranted: "GRANTED", FrameHolder: "HOLDER",
	FrameWantKeyframe: "WANT_KEYFRAME", FrameKeyframe: "KEYFRAME", FramePace: "PACE", FrameRecording: "RECORDING",
	FrameAgent: "AGENT", FrameHeld: "HELD", FrameAgentTurn: "AGENT_TURN", FrameTools: "TOOLS", FrameShared: "SHARED", FrameTerminals: "TERMINALS",
	FrameResult: "RESULT", FrameApproval: "APPROVAL",
}

func (t FrameType) String() string {
	if name, ok := frameTypes[t]; ok {
		return name
	}
	return fmt.Sprintf("0x%02x", uint8(t))
}

// Skippable reports whether a reader that doesn't know t may ignore the frame.
func (t FrameType) Skippable() bool { return t&0x80 != 0 }

const (
	frameHeaderBytes = 5         // type, length
	dataHeaderBytes  = 8         // offset
	inputHeaderBytes = 8 + 8 + 1 // term, sequence, length of the client
	// offset, history, bytes left
	keyframeHeaderBytes = 8 + 1 + 4
)

// A Frame is one unit of a tunnel stream:
//
//	type: 1 B | length: 4 B, big-endian | payload: length B
type Frame struct {
	Type    FrameType
	Payload []byte
}

// Failures of the frame codec. ErrFrameTruncated is io.ErrUnexpectedEOF within
// a frame; a stream that ends between frames is io.EOF.
var (
	ErrFrameTooLarge  = errors.New("protocol: frame too large")
	ErrFrameUnknown   = errors.New("protocol: unknown frame type")
	ErrFrameTruncated = fmt.Errorf("protocol: truncated frame: %w", io.ErrUnexpectedEOF)
	ErrMessage        = errors.New("protocol: malformed message")
)

// AppendFrame appends one frame to dst. It fails with [ErrFrameTooLarge] when
// payload exceeds [MaxFramePayload].
func AppendFrame(dst []byte, t FrameType, payload []byte) ([]byte, error) {
	if len(payload) > MaxFramePayload {
		return dst, fmt.Errorf("%w: %s of %d bytes", ErrFrameTooLarge, t, len(payload))
	}
	dst = append(dst, byte(t))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...), nil
}

// A FrameReader reads frames. It buffers, so nothing else may read from the
// same source, except through [FrameReader.Rest] once the frames are over.
type FrameReader struct {
	src *bufio.Reader
	buf []byte
}

// NewFrameReader returns a FrameReader over r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{src: bufio.NewReaderSize(r, MaxStreamWrite)}
}

// Next returns the next frame, whose payload is valid until the next call.
// Unknown frames that may be skipped are skipped; others fail with
// [ErrFrameUnknown]. The end between two frames is [io.EOF].
func (fr *FrameReader) Next() (Frame, error) {
	for {
		header, err := fr.src.Peek(frameHeaderBytes)
		if err != nil {
			if errors.Is(err, io.EOF) && len(header) > 0 {
				err = ErrFrameTruncated
			}
			return Frame{}, err
		}
		t, n := FrameType(header[0]), binary.BigEndian.Uint32(header[1:])
		_, known := frameTypes[t]
		switch {
		case !known && !t.Skippable():
			return Frame{}, fmt.Errorf("%w: %s", ErrFrameUnknown, t)
		case n > MaxFramePayload:
			return Frame{}, fmt.Errorf("%w: %s of %d bytes", ErrFrameTooLarge, t, n)
		}
		fr.src.Discard(frameHeaderBytes)
		payload, err := fr.payload(int(n))
		if err != nil {
			return Frame{}, err
		}
		if known {
			return Frame{t, payload}, nil
		}
	}
}

// Ready reports whether Next can return a frame, or fail, without reading from
// the source.
func (fr *FrameReader) Ready() bool {
	if fr.src.Buffered() < frameHeaderBytes {
		return false
	}
	header, _ := fr.src.Peek(frameHeaderBytes) // can't fail
	return uint64(fr.src.Buffered()) >= frameHeaderBytes+uint64(binary.BigEndian.Uint32(header[1:]))
}

// payload reads n bytes. It grows its buffer with what arrives, never with
// what a header merely announces.
func (fr *FrameReader) payload(n int) ([]byte, error) {
	fr.buf = fr.buf[:0]
	for len(fr.buf) < n {
		chunk, err := fr.src.Peek(min(n-len(fr.buf), MaxStreamWrite))
		fr.buf = append(fr.buf, chunk...)
		fr.src.Discard(len(chunk))
		if errors.Is(err, io.EOF) && len(fr.buf) < n {
			return nil, ErrFrameTruncated
		}
		if err != nil && len(fr.buf) < n {
			return nil, err
		}
	}
	return fr.buf, nil
}

// ReadFrame reads one frame from r, and not a byte more, for streams that turn
// into something else afterwards. Frames that may be skipped are.
func ReadFrame(r io.Reader) (Frame, error) {
	for {
		var header [frameHeaderBytes]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = ErrFrameTruncated
			}
			return Frame{}, err
		}
		t, n := FrameType(header[0]), binary.BigEndian.Uint32(header[1:])
		_, known := frameTypes[t]
		switch {
		case !known && !t.Skippable():
			return Frame{}, fmt.Errorf("%w: %s", ErrFrameUnknown, t)
		case n > MaxFramePayload:
			return Frame{}, fmt.Errorf("%w: %s of %d bytes", ErrFrameTooLarge, t, n)
		}
		payload, err := io.ReadAll(io.LimitReader(r, int64(n)))
		if err != nil {
			return Frame{}, err
		}
		if len(payload) < int(n) {
			return Frame{}, ErrFrameTruncated
		}
		if known {
			return Frame{t, payload}, nil
		}
	}
}

// Rest returns what follows the frames read so far: bytes already buffered,
// then the source. Use it when a stream turns from frames into opaque bytes.
func (fr *FrameReader) Rest() io.Reader { return fr.src }
