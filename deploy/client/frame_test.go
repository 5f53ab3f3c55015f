package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
)

// taken is a frameTaker that remembers.
type taken struct {
	messages []string // "b:" or "t:" and the payload, "p:" a ping
	current  []byte
	code     int
}

func (t *taken) binary(p []byte, last bool) error {
	t.current = append(t.current, p...)
	if last {
		t.messages = append(t.messages, "b:"+string(t.current))
		t.current = nil
	}
	return nil
}

func (t *taken) text(p []byte) error {
	t.messages = append(t.messages, "t:"+string(p))
	return nil
}

func (t *taken) ping(p []byte) error {
	t.messages = append(t.messages, "p:"+string(p))
	return nil
}

func (t *taken) closed(code int, _ string) error {
	t.code = code
	return net.ErrClosed
}

// serverFrame is a frame as a server writes it.
func serverFrame(final bool, opcode byte, payload string) []byte {
	first := opcode
	if final {
		first |= 0x80
	}
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

func TestFramesCutAnywhere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var stream []byte
	var want []string
	for range 200 {
		payload := string(bytes.Repeat([]byte{byte('a' + random.IntN(26))}, []int{0, 1, 125, 126, 127, 4000, 70_000}[random.IntN(7)]))
		switch random.IntN(4) {
		case 0:
			stream = append(stream, serverFrame(true, opText, payload)...)
			want = append(want, "t:"+payload)
		case 1:
			stream = append(stream, serverFrame(true, opPing, payload[:min(len(payload), 125)])...)
			want = append(want, "p:"+payload[:min(len(payload), 125)])
		case 2:
			cut := len(payload) / 2
			stream = append(stream, serverFrame(false, opBinary, payload[:cut])...)
			stream = append(stream, serverFrame(true, opContinuation, payload[cut:])...)
			want = append(want, "b:"+payload)
		default:
			stream = append(stream, serverFrame(true, opBinary, payload)...)
			want = append(want, "b:"+payload)
		}
	}
	for _, most := range []int{1, 3, 1000, len(stream)} {
		var p parser
		var got taken
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(most))
			if err := p.feed(rest[:n], &got); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if len(got.messages) != len(want) {
			t.Fatalf("pieces of %d bytes: %d messages, want %d", most, len(got.messages), len(want))
		}
		for i := range want {
			if got.messages[i] != want[i] {
				t.Fatalf("pieces of %d bytes: message %d is %.20q, want %.20q", most, i, got.messages[i], want[i])
			}
		}
	}
}

func TestFramesThatBreakTheRules(t *testing.T) {
	for name, test := range map[string]struct {
		stream []byte
		want   error
	}{
		"masked":             {[]byte{0x82, 0x81, 0, 0, 0, 0, 'x'}, errMasked},
		"reserved bit":       {[]byte{0xc2, 1, 'x'}, errReserved},
		"unknown opcode":     {[]byte{0x83, 0}, errOpcode},
		"long ping":          {serverFrame(true, opPing, string(make([]byte, 126))), errControl},
		"fragmented ping":    {serverFrame(false, opPing, "x"), errControl},
		"no beginning":       {serverFrame(true, opContinuation, "x"), errOrder},
		"two beginnings":     {append(serverFrame(false, opBinary, "x"), serverFrame(true, opText, "y")...), errOrder},
		"ping within a text": {append(serverFrame(false, opText, "x"), serverFrame(true, opPing, "")...), errOrder},
	} {
		var p parser
		if err := p.feed(test.stream, &taken{}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	var p parser
	if err := p.feed([]byte{0x82, 127, 0x7f, 0, 0, 0, 0, 0, 0, 0}, &taken{}); err == nil {
		t.Error("a frame of 2^62 bytes is taken")
	}
	p = parser{}
	if err := p.feed([]byte{0x81, 127, 0, 0, 0, 0, 0, 8, 0, 0}, &taken{}); err == nil {
		t.Error("a text of 512 KiB is taken")
	}
}

func TestCloseFrameTellsItsCode(t *testing.T) {
	for payload, want := range map[string]int{"": 1005, "\x0f\xa4gone": 4004} {
		var p parser
		var got taken
		if err := p.feed(serverFrame(true, opClose, payload), &got); !errors.Is(err, net.ErrClosed) || got.code != want {
			t.Errorf("close %q: code %d, %v; want %d", payload, got.code, err, want)
		}
	}
}

// FuzzFrames feeds anything, whole and cut: both must come to the same.
func FuzzFrames(f *testing.F) {
	f.Add(serverFrame(true, opBinary, "output"), 3)
	f.Add(append(serverFrame(true, opText, `{"type":"presence"}`), serverFrame(true, opPing, "")...), 1)
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'x'}, 5)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		cut = max(0, min(cut, len(stream)))
		var whole, cutTaken taken
		var p parser
		err := p.feed(stream, &whole)
		p = parser{}
		cutErr := p.feed(stream[:cut], &cutTaken)
		if cutErr == nil {
			cutErr = p.feed(stream[cut:], &cutTaken)
		}
		if (err == nil) != (cutErr == nil) || len(whole.messages) != len(cutTaken.messages) {
			t.Fatalf("whole: %v, %d messages; cut at %d: %v, %d messages", err, len(whole.messages), cut, cutErr, len(cutTaken.messages))
		}
		for i := range whole.messages {
			if whole.messages[i] != cutTaken.messages[i] {
				t.Fatalf("message %d differs when cut at %d", i, cut)
			}
		}
	})
}

func TestClientFrames(t *testing.T) {
	const key = 0x01020380
	for _, n := range []int{0, 125, 126, 0xffff, 0x10000} {
		payload := bytes.Repeat([]byte{'x'}, n)
		frame := appendFrame(nil, opBinary, key, payload)
		head := len(frame) - n
		if want := map[int]int{0: 6, 125: 6, 126: 8, 0xffff: 8, 0x10000: 14}[n]; head != want {
			t.Errorf("the head of a frame of %d bytes has %d, want %d", n, head, want)
		}
		if frame[0] != 0x82 || frame[1]&0x80 == 0 || binary.BigEndian.Uint32(frame[head-4:]) != key {
			t.Errorf("frame of %d bytes begins with % x", n, frame[:head])
		}
		for i := range payload {
			frame[head+i] ^= frame[head-4+i%4]
		}
		if !bytes.Equal(frame[head:], payload) {
			t.Errorf("a frame of %d bytes unmasks to something else", n)
		}
	}
}
