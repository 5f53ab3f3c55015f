package replay

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// WebSocket frames as a server sends them (RFC 6455 §5.2): never masked, never
// fragmented.
//
//	FIN|opcode: 1 B | length: 1, 3 or 9 B | payload
const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	fin      = 0x80

	length16  = 126 // the length follows in 2 B
	length64  = 127 // the length follows in 8 B
	maxHeader = 10  // bytes

	maxCloseReason = 125 - 2 // bytes; a control frame's payload is at most 125
)

// AppendTextFrame appends payload, which must be UTF-8, as one text frame.
func AppendTextFrame(dst, payload []byte) []byte {
	return append(appendHeader(dst, opText, len(payload)), payload...)
}

// AppendBinaryFrame appends payload as one binary frame.
func AppendBinaryFrame(dst, payload []byte) []byte {
	return append(appendHeader(dst, opBinary, len(payload)), payload...)
}

// AppendBinaryHeader appends the header of a binary frame with n bytes of
// payload, which must follow.
func AppendBinaryHeader(dst []byte, n int) []byte { return appendHeader(dst, opBinary, n) }

// AppendCloseFrame appends a close frame. It drops invalid UTF-8 from reason,
// and whatever exceeds 123 bytes.
func AppendCloseFrame(dst []byte, code uint16, reason string) []byte {
	reason = strings.ToValidUTF8(reason, "")
	if len(reason) > maxCloseReason {
		n := maxCloseReason
		for !utf8.RuneStart(reason[n]) {
			n--
		}
		reason = reason[:n]
	}
	dst = appendHeader(dst, opClose, 2+len(reason))
	dst = binary.BigEndian.AppendUint16(dst, code)
	return append(dst, reason...)
}

// PingFrame returns a ping with a number. Its answer says that the peer has got all
// that was written before it.
func PingFrame(number uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(nil, opPing, 8), number)
}

// PingNumber returns the number of a PingFrame's payload, which is its answer's.
func PingNumber(payload []byte) (number uint64, ok bool) {
	if len(payload) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(payload), true
}

func appendHeader(dst []byte, op byte, n int) []byte {
	dst = append(dst, fin|op)
	switch headerBytes(n) {
	case 2:
		return append(dst, byte(n))
	case 4:
		return binary.BigEndian.AppendUint16(append(dst, length16), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, length64), uint64(n))
}

// headerBytes returns the length of the header of a frame with n bytes.
func headerBytes(n int) int {
	switch {
	case n < length16:
		return 2
	case n <= 0xffff:
		return 4
	}
	return maxHeader
}

// A frame is one of our own frames, parsed.
type frame struct {
	data    []byte // the terminal's bytes, empty for a text frame
	size    int    // of the whole frame, in bytes
	isEvent bool   // a text frame
}

// firstFrame parses the first frame of b.
func firstFrame(b []byte) frame {
	n, header := int(b[1]), 2
	switch b[1] {
	case length16:
		n, header = int(binary.BigEndian.Uint16(b[2:])), 4
	case length64:
		n, header = int(binary.BigEndian.Uint64(b[2:])), maxHeader
	}
	f := frame{size: header + n, isEvent: b[0] == fin|opText}
	if !f.isEvent {
		f.data = b[header:f.size:f.size]
	}
	return f
}
