package wsslink

import (
	"encoding/binary"
	"math/rand/v2"
)

// Opcodes of RFC 6455 §5.2.
const (
	opBinary = 0x2
	opClose  = 0x8

	finalBit = 0x80
	maskBit  = 0x80
)

// appendFrame appends a final frame to dst, masked as a client must (RFC 6455
// §5.3). Its payload is the parts of payload, one behind the other.
func appendFrame(dst []byte, opcode byte, masked bool, payload ...[]byte) []byte {
	size := 0
	for _, part := range payload {
		size += len(part)
	}
	var mask byte
	if masked {
		mask = maskBit
	}
	dst = append(dst, finalBit|opcode)
	switch n := size; {
	case n < 126:
		dst = append(dst, mask|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, mask|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, mask|127), uint64(n))
	}
	var key uint32
	if masked {
		key = rand.Uint32()
		dst = binary.LittleEndian.AppendUint32(dst, key)
	}
	begin := len(dst)
	for _, part := range payload {
		dst = append(dst, part...)
	}
	if masked {
		xor(dst[begin:], key)
	}
	return dst
}

// xor masks p with the four bytes of key, the lowest first.
func xor(p []byte, key uint32) {
	wide := uint64(key)<<32 | uint64(key)
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^wide)
		p = p[8:]
	}
	for i := range p {
		p[i] ^= byte(wide >> (8 * i))
	}
}

// closePayload is the body of a close frame.
func closePayload(code int, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)
}
