package replay

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFrames(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 128, 65535, 65536, 70000} {
		payload := bytes.Repeat([]byte{'x'}, n)
		wire := AppendBinaryFrame(AppendTextFrame([]byte("before"), payload), payload)
		if !bytes.HasPrefix(wire, []byte("before")) {
			t.Fatal("dst was not appended to")
		}
		wire = wire[len("before"):]
		got, err := parse(wire)
		if err != nil || len(got) != 2 || got[0].op != 1 || got[1].op != 2 {
			t.Fatalf("%d bytes: %d frames, %v", n, len(got), err)
		}
		for _, m := range got {
			if !bytes.Equal(m.payload, payload) {
				t.Errorf("%d bytes came back as %d", n, len(m.payload))
			}
		}
		event := firstFrame(wire)
		if !event.isEvent || event.size != len(wire)/2 {
			t.Errorf("%d bytes: text frame parsed as %d bytes", n, event.size)
		}
		output := firstFrame(wire[event.size:])
		if output.isEvent || output.size != len(wire)/2 || !bytes.Equal(output.data, payload) {
			t.Errorf("%d bytes: binary frame parsed as %d bytes", n, output.size)
		}
	}
}

// The bytes of RFC 6455 §5.7.
func TestFrameVectors(t *testing.T) {
	for _, test := range []struct {
		name string
		got  []byte
		want string
	}{
		{"unmasked text", AppendTextFrame(nil, []byte("Hello")), "\x81\x05Hello"},
		{"256 bytes", AppendBinaryFrame(nil, make([]byte, 256))[:4], "\x82\x7e\x01\x00"},
		{"64 KiB", AppendBinaryFrame(nil, make([]byte, 65536))[:10], "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"},
		{"close", AppendCloseFrame(nil, 4004, "session ended"), "\x88\x0f\x0f\xa4session ended"},
	} {
		if string(test.got) != test.want {
			t.Errorf("%s: % x, want % x", test.name, test.got, test.want)
		}
	}
}

func TestCloseFrameReason(t *testing.T) {
	for _, test := range []struct{ name, reason, want string }{
		{"empty", "", ""},
		{"longest", strings.Repeat("x", 123), strings.Repeat("x", 123)},
		{"too long", strings.Repeat("x", 124), strings.Repeat("x", 123)},
		{"cut before a character", strings.Repeat("x", 122) + "€", strings.Repeat("x", 122)},
		{"ends with a character", strings.Repeat("x", 120) + "€€", strings.Repeat("x", 120) + "€"},
		{"not UTF-8", "a\xff\x80b", "ab"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parse(AppendCloseFrame(nil, 1001, test.reason))
			if err != nil || len(got) != 1 || got[0].op != 8 {
				t.Fatalf("%d frames, %v", len(got), err)
			}
			p := got[0].payload
			if len(p) > 125 || string(p[:2]) != "\x03\xe9" || string(p[2:]) != test.want || !utf8.Valid(p[2:]) {
				t.Errorf("payload %q, want reason %q", p, test.want)
			}
		})
	}
}
