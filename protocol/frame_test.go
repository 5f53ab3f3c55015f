package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrameLayout(t *testing.T) {
	got, err := AppendFrame([]byte("before"), FrameData, []byte{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\x20\x00\x00\x00\x03\x01\x02\x03"; string(got) != want {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestFrameSizes(t *testing.T) {
	for _, n := range []int{0, 1, MaxStreamWrite - 1, MaxStreamWrite, MaxStreamWrite + 1, MaxFramePayload} {
		payload := bytes.Repeat([]byte{0xa5}, n)
		wire, err := AppendFrame(nil, FrameData, payload)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		for name, src := range map[string]io.Reader{
			"whole": bytes.NewReader(wire), "bytewise": iotest.OneByteReader(bytes.NewReader(wire)),
			"with EOF": iotest.DataErrReader(bytes.NewReader(wire)),
		} {
			r := NewFrameReader(src)
			f, err := r.Next()
			if err != nil || f.Type != FrameData || !bytes.Equal(f.Payload, payload) {
				t.Errorf("%d bytes, %s: %s of %d bytes, %v", n, name, f.Type, len(f.Payload), err)
			}
			if _, err := r.Next(); err != io.EOF {
				t.Errorf("%d bytes, %s: then %v, want EOF", n, name, err)
			}
		}
	}
}

func TestFrameTooLarge(t *testing.T) {
	dst := []byte("kept")
	got, err := AppendFrame(dst, FrameData, make([]byte, MaxFramePayload+1))
	if !errors.Is(err, ErrFrameTooLarge) || string(got) != "kept" {
		t.Errorf("AppendFrame: %q, %v", got, err)
	}
	for _, header := range []string{
		"\x20\x00\x02\x00\x01", // one byte over
		"\x20\xff\xff\xff\xff",
		"\x80\xff\xff\xff\xff", // a skippable frame is no way round the limit
	} {
		// Nothing follows the header: the length alone must decide.
		if _, err := NewFrameReader(strings.NewReader(header)).Next(); !errors.Is(err, ErrFrameTooLarge) {
			t.Errorf("%x: %v", header, err)
		}
	}
}

func TestFrameUnknown(t *testing.T) {
	for typ := range 256 {
		typ := FrameType(typ)
		if _, known := frameTypes[typ]; known {
			continue
		}
		wire := string([]byte{byte(typ), 0, 0, 0, 2, 'x', 'y'}) + "\x05\x00\x00\x00\x08fairlead"
		f, err := NewFrameReader(strings.NewReader(wire)).Next()
		switch {
		case typ < 0x80 && !errors.Is(err, ErrFrameUnknown):
			t.Errorf("%s: %v, want ErrFrameUnknown", typ, err)
		case typ >= 0x80 && (err != nil || f.Type != FramePing || string(f.Payload) != "fairlead"):
			t.Errorf("%s: got %s %q, %v, want the PING behind it", typ, f.Type, f.Payload, err)
		}
		if _, err := Decode(Frame{Type: typ}); !errors.Is(err, ErrFrameUnknown) {
			t.Errorf("Decode of %s: %v", typ, err)
		}
	}
}

// TestFramePrefixes cuts the frame of every message at every byte.
func TestFramePrefixes(t *testing.T) {
	frames := [][]byte{append([]byte{0xff, 0, 0, 0, 3}, "new"...)} // skipped, so cut short is cut short
	for _, m := range messages() {
		frames = append(frames, mustAppend(t, m))
	}
	for _, wire := range frames {
		for n := range wire {
			_, err := NewFrameReader(bytes.NewReader(wire[:n])).Next()
			want := ErrFrameTruncated
			if n == 0 {
				want = io.EOF
			}
			if !errors.Is(err, want) || (n > 0 && !errors.Is(err, io.ErrUnexpectedEOF)) {
				t.Fatalf("first %d of %x: %v, want %v", n, wire, err, want)
			}
		}
	}
}

// TestFrameReaderPassesErrors: a failing source is not an ended one.
func TestFrameReaderPassesErrors(t *testing.T) {
	cause := errors.New("connection lost")
	wire := mustAppend(t, Ping{7})
	for n := range len(wire) {
		src := io.MultiReader(bytes.NewReader(wire[:n]), iotest.ErrReader(cause))
		if _, err := NewFrameReader(src).Next(); !errors.Is(err, cause) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// TestFrameReaderGrowsWithArrival: an announced length costs nothing.
func TestFrameReaderGrowsWithArrival(t *testing.T) {
	r := NewFrameReader(strings.NewReader("\x20\x00\x02\x00\x00only this"))
	if _, err := r.Next(); !errors.Is(err, ErrFrameTruncated) {
		t.Fatal(err)
	}
	if cap(r.buf) > MaxStreamWrite {
		t.Errorf("buffer of %d bytes for 9 that arrived", cap(r.buf))
	}
}

func TestFrameReaderRest(t *testing.T) {
	wire := append(mustAppend(t, Opened{}), "GET / HTTP/1.1\r\n"...)
	r := NewFrameReader(iotest.OneByteReader(bytes.NewReader(wire)))
	if f, err := r.Next(); err != nil || f.Type != FrameOpened {
		t.Fatal(f.Type, err)
	}
	rest, err := io.ReadAll(r.Rest())
	if err != nil || string(rest) != "GET / HTTP/1.1\r\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

func mustAppend(t *testing.T, m Message) []byte {
	t.Helper()
	wire, err := Append(nil, m)
	if err != nil {
		t.Fatalf("%#v: %v", m, err)
	}
	return wire
}
