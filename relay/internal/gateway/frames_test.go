package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// frame returns a frame whose header says so, masked, with payload or a part of
// it.
func frame(first byte, length uint64, payload string) string {
	b := []byte{first}
	switch {
	case length <= 125:
		b = append(b, 0x80|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), length)
	}
	return string(b) + "\x00\x00\x00\x00" + payload
}

// whole returns a frame with its payload.
func whole(first byte, payload string) string { return frame(first, uint64(len(payload)), payload) }

const (
	text, binaryFrame, continued, ping, pong, final = 0x01, 0x02, 0x00, 0x09, 0x0a, 0x80
)

func TestFrames(t *testing.T) {
	largest := strings.Repeat("x", protocol.MaxBrowserMessage)
	for name, c := range map[string]struct {
		sent string
		want *frameFault
	}{
		"a text":                        {whole(final|text, "{}"), nil},
		"nothing":                       {whole(final|binaryFrame, ""), nil},
		"125 and 126 B":                 {whole(final|text, largest[:125]) + whole(final|text, largest[:126]), nil},
		"the largest":                   {whole(final|binaryFrame, largest), nil},
		"the largest, in parts":         {whole(binaryFrame, largest[1:]) + whole(final, "x"), nil},
		"one after another":             {strings.Repeat(whole(final|binaryFrame, largest), 3), nil},
		"as many fragments as may be":   {whole(text, "") + strings.Repeat(whole(continued, ""), maxFragments-2) + whole(final, ""), nil},
		"control frames between":        {whole(text, "a") + whole(final|ping, "b") + whole(final|pong, largest[:125]) + whole(final, "c"), nil},
		"many messages of fragments":    {strings.Repeat(whole(text, "a")+whole(final, "b"), maxFragments+1), nil},
		"one byte more":                 {frame(final|binaryFrame, protocol.MaxBrowserMessage+1, ""), faultTooBig},
		"one byte more, in parts":       {whole(binaryFrame, largest) + frame(final, 1, ""), faultTooBig},
		"2⁶³−1 B":                       {frame(final|binaryFrame, 1<<63-1, ""), faultTooBig},
		"2⁶³−1 B, in parts":             {whole(binaryFrame, "a") + frame(final, 1<<63-1, ""), faultTooBig},
		"2⁶³ B":                         {frame(final|binaryFrame, 1<<63, ""), faultLength},
		"one fragment more":             {whole(text, "") + strings.Repeat(whole(continued, ""), maxFragments), faultFragments},
		"not masked":                    {"\x81\x02hi", faultUnmasked},
		"a ping not masked":             {"\x89\x00", faultUnmasked},
		"the second not masked":         {whole(final|text, "{}") + "\x82\x7f", faultUnmasked},
		"RSV1":                          {whole(0x40|final|text, "{}"), faultRSV},
		"RSV2":                          {whole(0x20|final|text, "{}"), faultRSV},
		"RSV3 of a ping":                {whole(0x10|final|ping, ""), faultRSV},
		"RSV1 of a continuation":        {whole(text, "a") + whole(0x40|final, "b"), faultRSV},
		"an opcode for later":           {whole(final|3, ""), faultOpcode},
		"a control opcode for later":    {whole(final|0xb, ""), faultOpcode},
		"a control frame of 126 B":      {frame(final|ping, 126, ""), faultControl},
		"a pong of 64 KiB":              {frame(final|pong, 1<<16, ""), faultControl},
		"a close of 126 B":              {frame(final|8, 126, ""), faultControl},
		"a fragmented ping":             {whole(ping, ""), faultControl},
		"a continuation of nothing":     {whole(final, ""), faultOrder},
		"a message within one":          {whole(text, "a") + whole(final|text, "b"), faultOrder},
		"a continuation after the last": {whole(text, "a") + whole(final, "b") + whole(final, "c"), faultOrder},
	} {
		t.Run(name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 3, 511, len(c.sent)} {
				told := 0
				r := &frameReader{frames: frames{most: protocol.MaxBrowserMessage}, source: pieces{strings.NewReader(c.sent), piece}, found: func(*frameFault) { told++ }}
				got, err := io.ReadAll(r)
				fault, _ := errors.AsType[*frameFault](err)
				if fault != c.want || (told == 1) != (c.want != nil) {
					t.Errorf("in pieces of %d: %v, told %d times", piece, err, told)
				}
				if !strings.HasPrefix(c.sent, string(got)) || fault == nil && len(got) != len(c.sent) {
					t.Errorf("in pieces of %d: %d of %d bytes passed", piece, len(got), len(c.sent))
				}
				if fault != nil && len(c.sent) < 100 && len(got) >= len(c.sent) {
					t.Errorf("in pieces of %d: all passed", piece)
				}
			}
		})
	}
}

// pieces reads so many bytes at a time.
type pieces struct {
	io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

func TestCloseFrame(t *testing.T) {
	for _, f := range []*frameFault{
		faultRSV, faultOpcode, faultUnmasked, faultControl, faultOrder, faultLength, faultTooBig, faultFragments,
	} {
		frame := f.closeFrame()
		if len(frame) != 2+int(frame[1]) || frame[1] > 125 || frame[0] != 0x88 || int(binary.BigEndian.Uint16(frame[2:])) != f.code ||
			!bytes.HasSuffix(frame, []byte(f.reason)) {
			t.Errorf("%v: % x", f, frame)
		}
	}
}

// FuzzFrames: where the bytes are cut makes no difference.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(whole(text, "a")+whole(final|ping, "b")+whole(final, "c")), 3)
	f.Add([]byte(frame(final|binaryFrame, 1<<63-1, "")), 1)
	f.Fuzz(func(t *testing.T, sent []byte, piece int) {
		all := &frameReader{frames: frames{most: protocol.MaxBrowserMessage}, source: bytes.NewReader(sent), found: func(*frameFault) {}}
		cut := &frameReader{frames: frames{most: protocol.MaxBrowserMessage}, source: pieces{bytes.NewReader(sent), 1 + piece&0xff}, found: func(*frameFault) {}}
		a, errA := io.ReadAll(all)
		b, errB := io.ReadAll(cut)
		if !bytes.Equal(a, b) || errA != errB {
			t.Errorf("%d and %d bytes, %v and %v", len(a), len(b), errA, errB)
		}
	})
}

// Nothing that was read is left behind a message that is alone: who reads it may wait
// for more.
func TestAlone(t *testing.T) {
	a, ended := whole(final|text, "a"), whole(final|ping, "p")
	for name, c := range map[string]struct {
		pieces []string // read one after the other
		want   bool     // after the last
	}{
		"a message":                {[]string{a}, true},
		"an empty one":             {[]string{whole(final|binaryFrame, "")}, true},
		"its end":                  {[]string{a[:3], a[3:]}, true},
		"its begin":                {[]string{a[:3]}, false},
		"two":                      {[]string{a + a}, false},
		"two, then one":            {[]string{a + a, a}, true},
		"one and a part":           {[]string{a + a[:1]}, false},
		"that part's end":          {[]string{a + a[:1], a[1:]}, true},
		"a ping before it":         {[]string{ended + a}, true},
		"a ping behind it":         {[]string{a + ended}, false},
		"a ping alone":             {[]string{ended}, false},
		"in fragments":             {[]string{whole(text, "a") + whole(final, "b")}, true},
		"a fragment":               {[]string{whole(text, "a")}, false},
		"a ping between fragments": {[]string{whole(text, "a") + ended + whole(final, "")}, true},
	} {
		f := frames{most: 1 << 10}
		for _, p := range c.pieces {
			if _, fault := f.pass([]byte(p)); fault != nil {
				t.Fatalf("%s: %v", name, fault)
			}
		}
		if f.alone != c.want {
			t.Errorf("%s: %t", name, f.alone)
		}
	}
}
