package wsslink

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"testing"
)

// unframe reads one frame, as RFC 6455 §5.2 describes it.
func unframe(t *testing.T, p []byte) (opcode byte, payload, rest []byte) {
	t.Helper()
	n, at := int(p[1]&0x7f), 2
	switch n {
	case 126:
		n, at = int(binary.BigEndian.Uint16(p[2:])), 4
	case 127:
		n, at = int(binary.BigEndian.Uint64(p[2:])), 10
	}
	var key [4]byte
	if p[1]&0x80 != 0 {
		copy(key[:], p[at:])
		at += 4
	}
	payload = bytes.Clone(p[at : at+n])
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	return p[0], payload, p[at+n:]
}

func FuzzFrame(f *testing.F) {
	for _, n := range []int{0, 1, 7, 125, 126, 65535, 65536} {
		f.Add(bytes.Repeat([]byte("ab"), (n+1)/2)[:n], true)
	}
	f.Fuzz(func(t *testing.T, data []byte, masked bool) {
		framed := appendFrame([]byte("before"), opBinary, masked, data)
		opcode, payload, rest := unframe(t, framed[len("before"):])
		if opcode != finalBit|opBinary || !bytes.Equal(payload, data) || len(rest) != 0 || framed[7]&0x80 != 0 != masked {
			t.Errorf("opcode %x, %d bytes of %d, %d left", opcode, len(payload), len(data), len(rest))
		}
	})
}

// What parseSecret takes has one spelling, and what it refuses isn't quoted.
func FuzzSecret(f *testing.F) {
	f.Add("")
	f.Add(encoding.EncodeToString(make([]byte, secretBytes)))
	f.Add(encoding.EncodeToString(make([]byte, secretBytes-1)))
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB")
	f.Fuzz(func(t *testing.T, value string) {
		secret, err := parseSecret(http.Header{secretHeader: {value}})
		switch {
		case err != nil && err != errSecret:
			t.Errorf("error %v", err)
		case err == nil && (len(secret) != secretBytes || encoding.EncodeToString(secret) != value):
			t.Errorf("%q is %x", value, secret)
		}
	})
}

func TestNoSecret(t *testing.T) {
	if secret, err := parseSecret(http.Header{}); secret != nil || err != nil {
		t.Errorf("none: %x, %v", secret, err)
	}
	two := encoding.EncodeToString(make([]byte, secretBytes))
	if _, err := parseSecret(http.Header{secretHeader: {two, two}}); err == nil {
		t.Error("two secrets")
	}
}
