package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// WantKeyframe asks for a keyframe. It comes as soon as KeyframeInterval
// allows, between the DATA before and after its offset.
type WantKeyframe struct {
	History bool `json:"history"` // with lines above the screen, for newcomers
}

func (WantKeyframe) FrameType() FrameType { return FrameWantKeyframe }
func (WantKeyframe) check() error         { return nil }

// Keyframe carries a piece of a keyframe: bytes that give any terminal of the
// size at Offset the screen of that moment. The pieces of one keyframe are
// consecutive; the last one has Left 0.
type Keyframe struct {
	Offset  uint64 // it includes output up to here
	History bool   // as in WantKeyframe
	Left    int    // bytes that remain
	Bytes   []byte
}

func (Keyframe) FrameType() FrameType { return FrameKeyframe }

func (m Keyframe) check() error {
	if len(m.Bytes) == 0 || m.Left < 0 || len(m.Bytes)+m.Left > MaxKeyframeBytes {
		return fmt.Errorf("keyframe of %d bytes and %d more", len(m.Bytes), m.Left)
	}
	return nil
}

func (m Keyframe) appendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, m.Offset)
	history := byte(0)
	if m.History {
		history = 1
	}
	dst = append(dst, history)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Left))
	return append(dst, m.Bytes...)
}

func decodeKeyframe(f Frame) (Message, error) {
	p := f.Payload
	if len(p) < keyframeHeaderBytes || p[8] > 1 {
		return nil, malformed(f.Type, errors.New("header"))
	}
	return Keyframe{
		Offset:  binary.BigEndian.Uint64(p),
		History: p[8] == 1,
		Left:    int(binary.BigEndian.Uint32(p[9:])),
		Bytes:   p[keyframeHeaderBytes:],
	}, nil
}

// A Pacer is a viewer that slows the terminal down rather than missing output:
// the controller's, one that asked for every byte, or a recording.
type Pacer struct {
	ID     string `json:"id"`     // 1…MaxClientBytes, the same after a reconnect
	Offset uint64 `json:"offset"` // it has everything before
}

// Pace reports a pace-setter's progress.
type Pace struct {
	ID     string `json:"id"`
	Offset uint64 `json:"offset"`
	Gone   bool   `json:"gone,omitempty"` // it holds nothing back any more
}

func (Pace) FrameType() FrameType { return FramePace }
func (m Pace) check() error       { return checkClient(m.ID) }

// Recording says whether the terminal is being recorded, and under which id.
type Recording struct {
	ID string `json:"id,omitempty"` // empty: not recorded
}

func (Recording) FrameType() FrameType { return FrameRecording }
func (Recording) check() error         { return nil }

// Held says whether output has been held back for longer than HeldNotice,
// because it may be the beginning of a secret.
type Held struct {
	Held bool `json:"held"`
}

func (Held) FrameType() FrameType { return FrameHeld }
func (Held) check() error         { return nil }

// ReadParams are the params of OPEN for a part of a terminal's log.
type ReadParams struct {
	SessionID SessionID `json:"session_id"`
	PTYID     PTYID     `json:"pty_id"`
	Epoch     Epoch     `json:"epoch"`
	From      uint64    `json:"from"`
	To        uint64    `json:"to"` // the log's end when it is less
}

// ReadOpened is the result of OPENED for a part of a terminal's log: DATA and
// RESIZED of [From, To) follow, then the stream ends.
type ReadOpened struct {
	From uint64 `json:"from"` // later than asked for where the log begins later
	To   uint64 `json:"to"`   // not more than asked for, nor than there is
	Cols int    `json:"cols"` // at From
	Rows int    `json:"rows"` // at From
}
