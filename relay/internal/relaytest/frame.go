package relaytest

import (
	"encoding/binary"
	"errors"
)

// Frame splits one unmasked WebSocket frame off b.
func Frame(b []byte) (payload, rest []byte, err error) {
	var head [10]byte
	copy(head[:], b)
	n, header := int(head[1]), 2
	switch n {
	case 126:
		n, header = int(binary.BigEndian.Uint16(head[2:])), 4
	case 127:
		n, header = int(binary.BigEndian.Uint64(head[2:])), 10
	}
	if len(b) < header+n {
		return nil, nil, errors.New("a frame ends early")
	}
	return b[header : header+n], b[header+n:], nil
}
