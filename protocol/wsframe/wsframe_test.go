package wsframe

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
)

// frame returns a frame with a payload as a client or a server sends it.
func frame(final bool, op Opcode, masked bool, payload []byte) []byte {
	h := Header{Final: final, Opcode: op, Masked: masked, Length: uint64(len(payload))}
	if masked {
		h.Mask = [4]byte{1, 2, 3, 4}
	}
	b := h.Append(nil)
	start := len(b)
	b = append(b, payload...)
	if masked {
		for i := range payload {
			b[start+i] ^= h.Mask[i%4]
		}
	}
	return b
}

// A message is what a reader makes of frames: a message, or a control frame.
type message struct {
	Op   Opcode
	Text string
}

// messages reads frames as their receiver does; each must be within most.
func messages(t *testing.T, b []byte, masked bool, most uint64) (all []message) {
	t.Helper()
	rule := Rule{Masked: masked}
	var open message
	for len(b) > 0 {
		h, n, fault := Parse(b)
		if fault != nil || n == 0 || uint64(len(b)-n) < h.Length || h.Length > most {
			t.Fatalf("no whole frame: %+v %v", h, fault)
		}
		if fault := rule.Next(h); fault != nil {
			t.Fatal(fault)
		}
		payload := bytes.Clone(b[n : n+int(h.Length)])
		b = b[n+int(h.Length):]
		if h.Masked {
			for i := range payload {
				payload[i] ^= h.Mask[i%4]
			}
		}
		switch {
		case h.Opcode.Control():
			all = append(all, message{h.Opcode, string(payload)})
			continue
		case h.Opcode != Continuation:
			open = message{Op: h.Opcode}
		}
		if open.Text += string(payload); h.Final {
			all = append(all, open)
		}
	}
	return all
}

// carry carries what r has, and returns what was written.
func carry(r io.Reader, rule Rule) ([]byte, Closing, error) {
	var out bytes.Buffer
	c := Carrier{From: bufio.NewReaderSize(r, Window), To: &out, Rule: rule}
	closing, err := c.Carry()
	return out.Bytes(), closing, err
}

func kinds(masked bool) []byte {
	long := bytes.Repeat([]byte("0123456789"), 100_000) // of 1,000,000 bytes
	var b []byte
	b = append(b, frame(true, Text, masked, []byte("hi"))...)
	b = append(b, frame(true, Binary, masked, long)...)
	b = append(b, frame(false, Text, masked, long[:40_001])...)
	b = append(b, frame(true, Ping, masked, []byte("in between"))...)
	b = append(b, frame(true, Continuation, masked, nil)...)
	b = append(b, frame(true, Pong, masked, nil)...)
	b = append(b, frame(true, Binary, masked, long[:Piece])...)
	b = append(b, frame(true, Binary, masked, long[:Piece+1])...)
	return append(b, Closing{4321, "done"}.Append(nil, masked)...)
}

// TestCarries: what is sent arrives, in its order and of its type, both ways and
// however it comes in parts. Nothing behind a Close frame is passed on.
func TestCarries(t *testing.T) {
	for _, masked := range []bool{false, true} {
		sent := kinds(masked)
		for name, r := range map[string]io.Reader{
			"at once": bytes.NewReader(append(bytes.Clone(sent), "garbage"...)),
			"halves":  iotest.HalfReader(bytes.NewReader(sent)),
			"bytes":   iotest.OneByteReader(bytes.NewReader(sent)),
		} {
			got, closing, err := carry(r, Rule{Masked: masked, Most: 1 << 20})
			if err != nil || closing != (Closing{4321, "done"}) {
				t.Fatalf("%s: %v, %v", name, closing, err)
			}
			want := messages(t, sent, masked, 1<<20)
			if !reflect.DeepEqual(messages(t, got, masked, Piece), want) {
				t.Errorf("%s: other messages", name)
			}
		}
	}
}

// A writes counts what is written at once.
type writes struct{ all [][]byte }

func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, bytes.Clone(p))
	return len(p), nil
}

// TestTogether: many small frames cost one write, and a write always ends with a
// whole frame.
func TestTogether(t *testing.T) {
	var sent []byte
	for range 1000 {
		sent = append(sent, frame(true, Text, true, []byte("key"))...)
	}
	w := &writes{}
	c := Carrier{From: bufio.NewReaderSize(bytes.NewReader(sent), Window), To: w, Rule: Rule{Masked: true}}
	if _, err := c.Carry(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if len(w.all) != 1 || !bytes.Equal(w.all[0], sent) {
		t.Errorf("%d writes", len(w.all))
	}
	w.all = nil
	c = Carrier{From: bufio.NewReaderSize(bytes.NewReader(kinds(false)), Window), To: w}
	if _, err := c.Carry(); err != nil {
		t.Fatal(err)
	}
	for _, b := range w.all {
		for rest := b; len(rest) > 0; {
			h, n, fault := Parse(rest)
			if fault != nil || n == 0 || uint64(len(rest)-n) < h.Length {
				t.Fatalf("a write of %d bytes ends within a frame", len(b))
			}
			rest = rest[n+int(h.Length):]
		}
	}
}

// TestFaults: a frame that may not be is known by its header, and what came before
// it is passed on.
func TestFaults(t *testing.T) {
	before := frame(true, Text, true, []byte("before"))
	mib := Header{Final: true, Opcode: Binary, Masked: true, Length: 1<<20 + 1}.Append(nil)
	part := frame(false, Text, true, make([]byte, 1<<19))
	for name, tt := range map[string]struct {
		bad  []byte
		code int
	}{
		"reserved bit":    {[]byte{0xC1}, CodeProtocol},
		"opcode":          {[]byte{0x83}, CodeProtocol},
		"unmasked":        {[]byte{0x81, 0x01}, CodeProtocol},
		"long ping":       {[]byte{0x89, 0xFE}, CodeProtocol},
		"split ping":      {[]byte{0x09, 0x80}, CodeProtocol},
		"continues":       {[]byte{0x80, 0x80, 0, 0, 0, 0}, CodeProtocol},
		"highest bit":     {[]byte{0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0}, CodeProtocol},
		"close of a byte": {frame(true, Close, true, []byte{3}), CodeProtocol},
		"close with 1006": {frame(true, Close, true, []byte{3, 0xEE}), CodeProtocol},
		"close with 999":  {frame(true, Close, true, []byte{3, 0xE7}), CodeProtocol},
		"too big":         {mib, CodeTooBig},
		"2^63-1":          {[]byte{0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0}, CodeTooBig},
	} {
		got, _, err := carry(iotest.OneByteReader(bytes.NewReader(append(bytes.Clone(before), tt.bad...))), Rule{Masked: true, Most: 1 << 20})
		fault := &Fault{}
		if !errors.As(err, &fault) || fault.Code != tt.code || !bytes.Equal(got, before) {
			t.Errorf("%s: %v after %q", name, err, got)
		}
	}
	message := append(append(bytes.Clone(part), frame(false, Continuation, true, make([]byte, 1<<19))...), frame(true, Continuation, true, []byte{1})...)
	_, _, err := carry(bytes.NewReader(message), Rule{Masked: true, Most: 1 << 20})
	fault := &Fault{}
	if !errors.As(err, &fault) || fault.Code != CodeTooBig {
		t.Errorf("a message of too much in fragments: %v", err)
	}
	_, _, err = carry(bytes.NewReader(frame(true, Text, false, make([]byte, Piece+1))), Rule{Frame: Piece})
	if !errors.As(err, &fault) || fault.Code != CodeTooBig {
		t.Errorf("a frame over its bound: %v", err)
	}
}

// TestEnds: an end between frames isn't one within a frame, and a writer's error
// isn't a reader's.
func TestEnds(t *testing.T) {
	whole := frame(true, Binary, false, make([]byte, Piece+10))
	for n := range len(whole) {
		if n > 20 && n < len(whole)-20 {
			continue
		}
		_, _, err := carry(bytes.NewReader(whole[:n]), Rule{})
		read := &ReadError{}
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if !errors.As(err, &read) || !errors.Is(err, want) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	c := Carrier{From: bufio.NewReaderSize(bytes.NewReader(whole), Window), To: failing{}}
	if _, err := c.Carry(); !errors.As(err, new(*WriteError)) {
		t.Error(err)
	}
	c = Carrier{From: bufio.NewReader(bytes.NewReader(whole)), To: io.Discard}
	if _, err := c.Carry(); err == nil {
		t.Error("too small a window was taken")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestClosing: a Close frame says what it was made of.
func TestClosing(t *testing.T) {
	for _, c := range []Closing{{}, {1000, ""}, {4404, "Plugin not running"}, {4999, string(make([]byte, 500))}} {
		for _, masked := range []bool{false, true} {
			b := c.Append(nil, masked)
			h, n, fault := Parse(b)
			if fault != nil || h.Opcode != Close || n+int(h.Length) != len(b) {
				t.Fatalf("%v %v", h, fault)
			}
			got, fault := ParseClosing(h, b[n:])
			want := c
			want.Reason = want.Reason[:min(len(want.Reason), maxReason)]
			if fault != nil || got != want {
				t.Errorf("%v becomes %v, %v", c, got, fault)
			}
		}
	}
}

// FuzzCarry: whatever comes, what goes out is whole frames that say the same, in
// pieces; a fault shows the same however the bytes come.
func FuzzCarry(f *testing.F) {
	f.Add(kinds(true), true)
	f.Add(kinds(false), false)
	f.Add([]byte{0x81, 0x7E, 0, 1, 'a', 0x88, 0}, false)
	f.Fuzz(func(t *testing.T, sent []byte, masked bool) {
		if len(sent) > 1<<16 {
			return // the rest is slow, and the same
		}
		rule := Rule{Masked: masked, Most: 1 << 15}
		got, closing, err := carry(bytes.NewReader(sent), rule)
		again, sameClosing, sameErr := carry(iotest.OneByteReader(bytes.NewReader(sent)), rule)
		if !bytes.Equal(got, again) || closing != sameClosing || (err == nil) != (sameErr == nil) || err != nil && err.Error() != sameErr.Error() {
			t.Fatalf("%v %v, by bytes %v %v", closing, err, sameClosing, sameErr)
		}
		if !bytes.Equal(got, sent[:min(len(got), len(sent))]) {
			t.Fatal("short frames were changed")
		}
		messages(t, got, masked, Piece)
	})
}
