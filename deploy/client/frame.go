package client

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/protocol"
)

// Opcodes of WebSocket frames.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

const (
	// maxText bounds a text message, in bytes. A presence of fifty people is the
	// longest.
	maxText = 256 << 10
	// maxBinary bounds a binary frame, in bytes; the largest is a keyframe.
	maxBinary = protocol.MaxKeyframeBytes + 1<<20
	// noCode stands for a close frame without a code (RFC 6455).
	noCode = 1005
	// maxControl bounds a control frame's payload, in bytes (RFC 6455).
	maxControl = 125
	// maxHead bounds the header of a server's frame, in bytes.
	maxHead = 2 + 8
)

// Violations of RFC 6455 by a server.
var (
	errMasked   = violation("websocket: the server masks its frames")
	errReserved = violation("websocket: reserved bits are set")
	errOpcode   = violation("websocket: unknown opcode")
	errControl  = violation("websocket: a control frame is fragmented or too long")
	errOrder    = violation("websocket: fragments in the wrong order")
)

// A frameTaker gets what a parser finds. Its arguments are valid only during
// the call.
type frameTaker interface {
	// binary gets a piece of a binary message, which may be empty; last marks the
	// end of the message.
	binary(p []byte, last bool) error
	text(p []byte) error
	ping(p []byte) error
	// closed gets the code of a close frame, noCode if it has none.
	closed(code int, reason string) error
}

// A parser parses a server's WebSocket frames, split anywhere. It buffers only
// text and control frames.
type parser struct {
	head    [maxHead]byte
	nhead   int
	inBody  bool
	final   bool
	opcode  byte   // of the frame
	message byte   // opcode of the unfinished message, 0: none
	left    uint64 // bytes of the frame that remain
	kept    []byte // of a split text message or control frame; mostly nil
	size    int    // bytes of the text message so far
}

// feed parses the next bytes. After an error the connection is useless.
func (f *parser) feed(p []byte, to frameTaker) error {
	for {
		if !f.inBody {
			n, err := f.takeHead(p)
			if err != nil {
				return err
			}
			p = p[n:]
			if !f.inBody {
				return nil // the rest of the header is missing
			}
		}
		n := int(min(uint64(len(p)), f.left))
		f.left -= uint64(n)
		if err := f.body(p[:n], to); err != nil {
			return err
		}
		p = p[n:]
		f.inBody = f.left > 0
		if len(p) == 0 {
			return nil
		}
	}
}

// takeHead takes what p has of a frame's header.
func (f *parser) takeHead(p []byte) (n int, err error) {
	for n < len(p) {
		need := f.headBytes()
		taken := copy(f.head[f.nhead:need], p[n:])
		f.nhead, n = f.nhead+taken, n+taken
		if f.nhead == need && f.nhead == f.headBytes() {
			f.nhead = 0
			return n, f.begin()
		}
	}
	return n, nil
}

// headBytes returns the header's length, as far as it is known.
func (f *parser) headBytes() int {
	if f.nhead < 2 {
		return 2
	}
	switch f.head[1] & 0x7f {
	case 126:
		return 2 + 2
	case 127:
		return 2 + 8
	}
	return 2
}

// begin parses a complete header.
func (f *parser) begin() error {
	f.final, f.opcode = f.head[0]&0x80 != 0, f.head[0]&0x0f
	if f.head[0]&0x70 != 0 {
		return errReserved
	}
	if f.head[1]&0x80 != 0 {
		return errMasked
	}
	switch f.left = uint64(f.head[1]); f.left {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(f.head[2:])
	}
	f.inBody = true
	switch f.opcode {
	case opContinuation:
		if f.message == 0 {
			return errOrder
		}
	case opText, opBinary:
		if f.message != 0 {
			return errOrder
		}
		f.message, f.size = f.opcode, 0
	case opClose, opPing, opPong:
		if !f.final || f.left > maxControl {
			return errControl
		}
		return nil
	default:
		return errOpcode
	}
	if f.left > maxBinary || f.message == opText && f.left+uint64(f.size) > maxText {
		return violation("websocket: a frame of %d bytes", f.left)
	}
	if f.message == opText {
		f.size += int(f.left)
	}
	return nil
}

// body takes a piece of a frame's payload, the last one if nothing is left.
func (f *parser) body(p []byte, to frameTaker) error {
	done := f.left == 0
	if f.opcode >= opClose {
		return f.control(p, done, to)
	}
	last := done && f.final
	if f.message == opBinary {
		if last {
			f.message = 0
		}
		return to.binary(p, last)
	}
	if !last || len(f.kept) > 0 {
		f.kept = append(f.kept, p...)
		p = f.kept
	}
	if !last {
		return nil
	}
	f.message, f.kept = 0, nil
	return to.text(p)
}

// control takes a piece of a control frame. The standard allows one between the
// frames of a fragmented text. Relays never send that, so it is refused rather
// than buffered separately.
func (f *parser) control(p []byte, done bool, to frameTaker) error {
	if f.message == opText {
		return errOrder
	}
	if !done || len(f.kept) > 0 {
		f.kept = append(f.kept, p...)
		p = f.kept
	}
	if !done {
		return nil
	}
	f.kept = nil
	switch f.opcode {
	case opPing:
		return to.ping(p)
	case opClose:
		code, reason := noCode, ""
		if len(p) >= 2 {
			code, reason = int(binary.BigEndian.Uint16(p)), string(p[2:])
		}
		return to.closed(code, reason)
	}
	return nil
}

// appendFrame appends a client's frame to dst, masked with key.
func appendFrame(dst []byte, opcode byte, key uint32, payload []byte) []byte {
	dst = append(dst, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	var mask [4]byte
	binary.BigEndian.PutUint32(mask[:], key)
	dst = append(dst, mask[:]...)
	from := len(dst)
	dst = append(dst, payload...)
	for i := range payload {
		dst[from+i] ^= mask[i%len(mask)]
	}
	return dst
}
