// Package wsframe passes WebSocket frames on as they are: it checks their
// headers, never looks into them, and splits long ones, so that whatever was
// written ends with a whole frame and a Close frame can follow at any time.
package wsframe

import (
	"encoding/binary"
	"fmt"
)

// An Opcode says what a frame is.
type Opcode byte

// Opcodes of RFC 6455.
const (
	Continuation Opcode = 0
	Text         Opcode = 1
	Binary       Opcode = 2
	Close        Opcode = 8
	Ping         Opcode = 9
	Pong         Opcode = 10
)

// Control reports whether frames of this kind stand between those of messages.
func (o Opcode) Control() bool { return o&0x08 != 0 }

// Close codes of RFC 6455 that are ours to send.
const (
	CodeGoingAway = 1001
	CodeProtocol  = 1002
	CodeTooBig    = 1009
)

const (
	// MaxHeader bounds a frame's header, in bytes.
	MaxHeader = 14
	// maxControl bounds the payload of a control frame, in bytes.
	maxControl = 125
	// maxReason bounds the reason in a Close frame, in bytes.
	maxReason = maxControl - 2
)

// A Fault is a violation in a peer's frames, which ends the socket.
type Fault struct {
	Code   int // of the Close frame that says so
	Reason string
}

func (f *Fault) Error() string { return f.Reason }

var (
	faultRSV      = &Fault{CodeProtocol, "reserved bits are set"}
	faultOpcode   = &Fault{CodeProtocol, "unknown opcode"}
	faultUnmasked = &Fault{CodeProtocol, "a frame is not masked"}
	faultMasked   = &Fault{CodeProtocol, "a frame is masked"}
	faultControl  = &Fault{CodeProtocol, "a control frame is fragmented or too long"}
	faultOrder    = &Fault{CodeProtocol, "a fragment is out of place"}
	faultLength   = &Fault{CodeProtocol, "a length has its highest bit set"}
	faultClose    = &Fault{CodeProtocol, "a close frame has no valid code"}
	faultTooBig   = &Fault{CodeTooBig, "the message is too large"}
)

// A Header is a frame's header.
type Header struct {
	Final  bool
	Opcode Opcode
	Masked bool
	Mask   [4]byte
	Length uint64 // of the payload
}

// Parse reads the header at the beginning of b. n is its length, 0 if b doesn't
// hold all of it. What is wrong is said as soon as it shows.
func Parse(b []byte) (h Header, n int, fault *Fault) {
	if len(b) == 0 {
		return h, 0, nil
	}
	h.Final, h.Opcode = b[0]&0x80 != 0, Opcode(b[0]&0x0f)
	switch {
	case b[0]&0x70 != 0:
		return h, 0, faultRSV
	case h.Opcode > Binary && h.Opcode < Close || h.Opcode > Pong:
		return h, 0, faultOpcode
	case len(b) == 1:
		return h, 0, nil
	}
	h.Masked, h.Length, n = b[1]&0x80 != 0, uint64(b[1]&0x7f), 2
	if h.Opcode.Control() && (!h.Final || h.Length > maxControl) {
		return h, 0, faultControl
	}
	var extended int
	switch h.Length {
	case 126:
		extended = 2
	case 127:
		extended = 8
	}
	if n += extended; len(b) < n {
		return h, 0, nil
	}
	switch extended {
	case 2:
		h.Length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 8:
		if h.Length = binary.BigEndian.Uint64(b[2:]); h.Length >= 1<<63 {
			return h, 0, faultLength
		}
	}
	if !h.Masked {
		return h, n, nil
	}
	if len(b) < n+4 {
		return h, 0, nil
	}
	copy(h.Mask[:], b[n:])
	return h, n + 4, nil
}

// Append appends the header to b.
func (h Header) Append(b []byte) []byte {
	first, second := byte(h.Opcode), byte(0)
	if h.Final {
		first |= 0x80
	}
	if h.Masked {
		second = 0x80
	}
	switch {
	case h.Length <= 125:
		b = append(b, first, second|byte(h.Length))
	case h.Length <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, first, second|126), uint16(h.Length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, first, second|127), h.Length)
	}
	if h.Masked {
		b = append(b, h.Mask[:]...)
	}
	return b
}

// A Rule checks the frames that come one way, in their order.
type Rule struct {
	Masked bool   // they must be, as a client's
	Frame  uint64 // most bytes of a frame; 0: as many as of a message
	Most   uint64 // bytes of a message, all fragments together; 0: any number

	open bool   // a message continues
	size uint64 // of it, so far
}

// Next checks the next frame by its header.
func (r *Rule) Next(h Header) *Fault {
	switch {
	case h.Masked && !r.Masked:
		return faultMasked
	case !h.Masked && r.Masked:
		return faultUnmasked
	case h.Opcode.Control():
		return nil
	case r.open != (h.Opcode == Continuation):
		return faultOrder
	case r.Frame != 0 && h.Length > r.Frame:
		return faultTooBig
	}
	if !r.open {
		r.size = 0
	}
	r.open = !h.Final
	if r.Most == 0 {
		return nil
	}
	if h.Length > r.Most || r.size+h.Length > r.Most {
		return faultTooBig
	}
	r.size += h.Length
	return nil
}

// A Closing is what a Close frame says.
type Closing struct {
	Code   int // 0: nothing
	Reason string
}

// ParseClosing reads the payload of a Close frame with header h.
func ParseClosing(h Header, payload []byte) (c Closing, fault *Fault) {
	if len(payload) == 0 {
		return c, nil
	}
	plain := append([]byte(nil), payload...)
	if h.Masked {
		for i := range plain {
			plain[i] ^= h.Mask[i%4]
		}
	}
	if len(plain) < 2 {
		return c, faultClose
	}
	c = Closing{int(binary.BigEndian.Uint16(plain)), string(plain[2:])}
	if !mayBeSent(c.Code) {
		return c, faultClose
	}
	return c, nil
}

// mayBeSent reports whether a Close frame may have a code.
func mayBeSent(code int) bool {
	return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006 || code >= 3000 && code <= 4999
}

// Append appends the Close frame that says c to b: as a server's, or with a mask
// of zeros as a client's, which has nothing to hide and no page to guard against.
func (c Closing) Append(b []byte, masked bool) []byte {
	reason := c.Reason
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	h := Header{Final: true, Opcode: Close, Masked: masked}
	if c.Code == 0 {
		return h.Append(b)
	}
	h.Length = uint64(2 + len(reason))
	return append(binary.BigEndian.AppendUint16(h.Append(b), uint16(c.Code)), reason...)
}

func (c Closing) String() string { return fmt.Sprintf("%d %q", c.Code, c.Reason) }
