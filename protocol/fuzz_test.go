package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzFrameReader: any bytes are frames followed by a stated end, and what was
// read is what was there.
func FuzzFrameReader(f *testing.F) {
	for _, m := range messages() {
		wire, err := Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
		f.Add(wire[:len(wire)/2])
	}
	f.Add([]byte("\x81\x00\x00\x00\x01x\x05\x00\x00\x00\x08fairlead"))
	f.Add([]byte("\x20\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewFrameReader(bytes.NewReader(data))
		rest := data
		for {
			frame, err := r.Next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, ErrFrameTruncated) && !errors.Is(err, ErrFrameUnknown) && !errors.Is(err, ErrFrameTooLarge) {
					t.Fatalf("unexpected %v", err)
				}
				return
			}
			again, err := AppendFrame(nil, frame.Type, frame.Payload)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(rest, again) // skipped frames may stand before it
			if at < 0 {
				t.Fatalf("%s %x is not in the input", frame.Type, frame.Payload)
			}
			rest = rest[at+len(again):]
		}
	})
}

// FuzzDecode: a message that decodes can be sent on, and stays the same.
func FuzzDecode(f *testing.F) {
	for _, m := range messages() {
		wire, err := Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire[0], wire[frameHeaderBytes:])
	}
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		if len(payload) > MaxFramePayload {
			return
		}
		m, err := Decode(Frame{FrameType(typ), payload})
		if err != nil {
			if m != nil || (!errors.Is(err, ErrMessage) && !errors.Is(err, ErrFrameUnknown)) {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		wire, err := Append(nil, m)
		if errors.Is(err, ErrFrameTooLarge) {
			return // escaping can lengthen JSON
		}
		if err != nil {
			t.Fatalf("%#v can't be sent on: %v", m, err)
		}
		again, err := Decode(Frame{m.FrameType(), wire[frameHeaderBytes:]})
		if err != nil {
			t.Fatalf("%#v: %v", m, err)
		}
		second, err := Append(nil, again)
		if err != nil || !bytes.Equal(wire, second) {
			t.Fatalf("%#v changed to %#v, %v", m, again, err)
		}
	})
}

// FuzzPreface: what is read is what was written, and nothing behind it.
func FuzzPreface(f *testing.F) {
	f.Add([]byte("FLNE\x01\x07control"))
	f.Add([]byte("FLNE\x01\x08terminalmore"))
	f.Add([]byte("FLNE\x01\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		src := bytes.NewReader(data)
		p, err := ReadPreface(src)
		if err != nil {
			return
		}
		if read := data[:len(data)-src.Len()]; !bytes.Equal(AppendPreface(nil, p), read) {
			t.Fatalf("%v from %q", p, read)
		}
	})
}

// FuzzClientMessage: a browser can't send anything that the hub would have to
// check again.
func FuzzClientMessage(f *testing.F) {
	f.Add([]byte(`{"type":"resize","cols":80,"rows":24}`))
	f.Add([]byte(`{"type":"resize","cols":1e400,"rows":"24"}`))
	f.Add([]byte(`{"type":"grant_control","to":"usr_b"}`))
	f.Add([]byte(`{"type":"reauth","grant":"a.b.c"}`))
	f.Add([]byte(`{"type":"ping","x":[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeClientMessage(data)
		if err != nil {
			if e := AsError(err); (e.Kind != KindInvalid && e.Kind != KindUnsupported) || m != (ClientMessage{}) {
				t.Fatalf("%v, %s", m, e.Kind)
			}
			return
		}
		switch m.Type {
		case ClientResize:
			if checkSize(m.Cols, m.Rows) != nil {
				t.Fatalf("%+v", m)
			}
		case ClientGrantControl:
			if !ValidID(m.To) {
				t.Fatalf("%+v", m)
			}
		}
		if m.Grant != "" && m.Type != ClientReauth {
			t.Fatalf("%+v", m)
		}
	})
}

func FuzzPosition(f *testing.F) {
	f.Add("00000000000000ff:18")
	f.Add("ffffffffffffffff:9223372036854775808")
	f.Add(":")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err != nil {
			return
		}
		again, err := ParsePosition(p.String())
		if err != nil || again != p {
			t.Fatalf("%q is %v, then %v, %v", s, p, again, err)
		}
	})
}

func FuzzEpoch(f *testing.F) {
	f.Add([]byte("00000000000000ff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var e Epoch
		if e.UnmarshalText(text) == nil && e.String() != string(bytes.ToLower(text)) {
			t.Fatalf("%q is %s", text, e)
		}
	})
}

// FuzzUnmarshalObject: what is accepted is one JSON object of valid UTF-8.
func FuzzUnmarshalObject(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`))
	f.Add([]byte("{\"a\":\"\xff\"}"))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got map[string]any
		if err := UnmarshalObject(data, &got); err != nil {
			return
		}
		var value any
		if err := json.Unmarshal(data, &value); err != nil || !utf8.Valid(data) {
			t.Fatalf("%q: %v", data, err)
		}
		if object, ok := value.(map[string]any); !ok || !reflect.DeepEqual(object, got) {
			t.Fatalf("%q is %v", data, value)
		}
	})
}

func FuzzUnmarshalStrict(f *testing.F) {
	f.Add([]byte(`{"a":1}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`{"a":{"b":1,"b":2}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var strict, loose map[string]any
		if UnmarshalStrict(data, &strict) != nil {
			return
		}
		if err := UnmarshalObject(data, &loose); err != nil || !reflect.DeepEqual(strict, loose) {
			t.Fatalf("%q: %v, then %v, %v", data, strict, loose, err)
		}
	})
}

func FuzzKind(f *testing.F) {
	f.Add([]byte("not_found"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var k Kind
		if err := k.UnmarshalText(text); err != nil || (k != KindInternal && k.String() != string(text)) {
			t.Fatalf("%q is %s, %v", text, k, err)
		}
	})
}
