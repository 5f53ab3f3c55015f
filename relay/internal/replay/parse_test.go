package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"unicode/utf8"
)

// A message is what a WebSocket client would see.
type message struct {
	op      byte
	payload []byte
}

// parse reads frames as a strict client does (RFC 6455 §5.2), independently of
// the code under test.
func parse(wire []byte) ([]message, error) {
	var out []message
	for r := bytes.NewReader(wire); r.Len() > 0; {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return out, fmt.Errorf("header: %w", err)
		}
		op := head[0] & 0x0f
		switch {
		case head[0]&0x80 == 0:
			return out, fmt.Errorf("fragmented")
		case head[0]&0x70 != 0:
			return out, fmt.Errorf("reserved bits %#x", head[0])
		case head[1]&0x80 != 0:
			return out, fmt.Errorf("masked by a server")
		case op != 1 && op != 2 && op != 8:
			return out, fmt.Errorf("opcode %d", op)
		}
		n := uint64(head[1])
		var err error
		switch n {
		case 126:
			var v uint16
			err = binary.Read(r, binary.BigEndian, &v)
			if n = uint64(v); n < 126 {
				return out, fmt.Errorf("length %d in 2 bytes", n)
			}
		case 127:
			err = binary.Read(r, binary.BigEndian, &n)
			if n < 1<<16 || n > 1<<62 {
				return out, fmt.Errorf("length %d in 8 bytes", n)
			}
		}
		if err != nil || n > uint64(r.Len()) {
			return out, fmt.Errorf("frame of %d bytes cut off: %w", n, err)
		}
		m := message{op, make([]byte, n)}
		if _, err := io.ReadFull(r, m.payload); err != nil {
			return out, err
		}
		if op == 1 && !utf8.Valid(m.payload) {
			return out, fmt.Errorf("text frame is not UTF-8")
		}
		out = append(out, m)
	}
	return out, nil
}

// spell turns frames into text: the bytes of binary frames as they are, each
// text frame as <payload>.
func spell(tb testing.TB, frames net.Buffers) string {
	tb.Helper()
	messages, err := parse(join(frames))
	if err != nil {
		tb.Fatalf("not WebSocket frames: %v", err)
	}
	var b strings.Builder
	for _, m := range messages {
		if m.op == 1 {
			b.WriteString("<" + string(m.payload) + ">")
		} else {
			b.Write(m.payload)
		}
	}
	return b.String()
}

func join(frames net.Buffers) []byte { return bytes.Join(frames, nil) }
