package gateway

import (
	"encoding/binary"
	"io"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
)

// maxFragments bounds the frames of one message, all of which may be empty.
const maxFragments = 1024

// Close codes of RFC 6455.
const (
	closeProtocol = 1002
	closeTooBig   = 1009
)

// A frameFault is a violation in a client's frames. It ends the socket.
type frameFault struct {
	code   int
	reason string
}

func (f *frameFault) Error() string { return f.reason }

// kind returns f's error kind.
func (f *frameFault) kind() protocol.Kind {
	if f.code == closeTooBig {
		return protocol.KindTooLarge
	}
	return protocol.KindInvalid
}

var (
	faultRSV       = &frameFault{closeProtocol, "reserved bits are set"}
	faultOpcode    = &frameFault{closeProtocol, "unknown opcode"}
	faultUnmasked  = &frameFault{closeProtocol, "a frame is not masked"}
	faultControl   = &frameFault{closeProtocol, "a control frame is fragmented or too long"}
	faultOrder     = &frameFault{closeProtocol, "a fragment is out of place"}
	faultLength    = &frameFault{closeProtocol, "a length has its highest bit set"}
	faultTooBig    = &frameFault{closeTooBig, "the message is too large"}
	faultFragments = &frameFault{closeTooBig, "the message has too many fragments"}
)

// frames parses the headers of a client's frames as their bytes pass, so that a
// frame is refused by its header. The library checks most of it too, but it
// closes the socket silently for an unmasked frame, reads up to its limit of a
// frame that announces too much, and accepts any number of empty fragments.
type frames struct {
	most uint64   // bytes of a message
	head [14]byte // of the current frame
	have int      // bytes of it
	left uint64   // of the payload

	open      bool   // a message continues
	size      uint64 // of it, so far
	fragments int

	alone bool // what passed last ends with the only message that ends in it
}

// pass checks the next bytes. With a fault it returns how many of them come
// before the byte that shows it.
func (f *frames) pass(p []byte) (sound int, fault *frameFault) {
	ends, last := 0, 0
	defer func() { f.alone = ends == 1 && last == len(p) }()
	for i := 0; i < len(p); {
		if f.left > 0 {
			n := min(f.left, uint64(len(p)-i))
			f.left -= n
			i += int(n)
			if f.between() {
				ends, last = ends+1, i
			}
			continue
		}
		f.head[f.have] = p[i]
		f.have++
		if fault := f.look(); fault != nil {
			return i, fault
		}
		i++
		if f.between() {
			ends, last = ends+1, i
		}
	}
	return len(p), nil
}

// between reports whether a message has just ended.
func (f *frames) between() bool { return f.left == 0 && f.have == 0 && !f.open && !f.control() }

// look checks the header as far as it has come.
func (f *frames) look() *frameFault {
	switch f.have {
	case 1:
		return f.first()
	case 2:
		if f.head[1]&0x80 == 0 {
			return faultUnmasked
		}
		if f.control() && f.head[1]&0x7f > 125 {
			return faultControl
		}
	}
	extended := f.extended()
	if f.have == 2+extended {
		return f.announced()
	}
	if f.have == 2+extended+4 { // the mask, too
		f.left, f.have = f.length(), 0
	}
	return nil
}

func (f *frames) control() bool { return f.head[0]&0x08 != 0 }

// first checks the first byte.
func (f *frames) first() *frameFault {
	final, opcode := f.head[0]&0x80 != 0, f.head[0]&0x0f
	switch {
	case f.head[0]&0x70 != 0:
		return faultRSV
	case opcode > 2 && opcode < 8 || opcode > 10:
		return faultOpcode
	case f.control():
		if !final {
			return faultControl
		}
		return nil
	case f.open != (opcode == 0):
		return faultOrder
	}
	if !f.open {
		f.size, f.fragments = 0, 0
	}
	f.open = !final
	return nil
}

// extended returns the size of the extended length, in bytes.
func (f *frames) extended() int {
	if f.have < 2 {
		return 8
	}
	switch f.head[1] & 0x7f {
	case 126:
		return 2
	case 127:
		return 8
	}
	return 0
}

// length returns the length that the header announces.
func (f *frames) length() uint64 {
	switch short := f.head[1] & 0x7f; short {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		return binary.BigEndian.Uint64(f.head[2:])
	default:
		return uint64(short)
	}
}

// announced checks the length.
func (f *frames) announced() *frameFault {
	length := f.length()
	switch {
	case length >= 1<<63:
		return faultLength
	case f.control():
		return nil
	}
	f.fragments++
	switch f.size += length; {
	case length > f.most || f.size > f.most:
		return faultTooBig
	case f.fragments > maxFragments:
		return faultFragments
	}
	return nil
}

// A frameReader reads what a client sends, up to the first fault.
type frameReader struct {
	source io.Reader
	found  func(*frameFault) // called with the fault, once
	alone  atomic.Bool       // once a message is read, nothing that was read is left

	// Owned by the reader.
	frames frames
	fault  *frameFault
}

func (r *frameReader) Read(p []byte) (int, error) {
	if r.fault != nil {
		return 0, r.fault
	}
	n, err := r.source.Read(p)
	sound, fault := r.frames.pass(p[:n])
	r.alone.Store(r.frames.alone)
	if fault == nil {
		return n, err
	}
	r.fault = fault
	r.found(fault)
	return sound, fault
}

// closeFrame returns the frame that ends a socket for f.
func (f *frameFault) closeFrame() []byte {
	frame := []byte{0x88, byte(2 + len(f.reason)), byte(f.code >> 8), byte(f.code)}
	return append(frame, f.reason...)
}
