package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFound27MembersNamedTwice: what two readers could take for different
// messages is none; the quick way and the thorough one agree.
func TestFound27MembersNamedTwice(t *testing.T) {
	many := `{"type":"ping"`
	for _, c := range strings.Split("abcdefghijklmnopqrstuvw", "") {
		many += `,"` + c + `":1`
	}
	for text, distinct := range map[string]bool{
		`{"type":"ping"}`:                               true,
		` { "type" : "ping" , "x" : "type" } `:          true,
		`{"type":"ping","x":"{\"type\":1"}`:             true,
		`{"type":"ping","x":["type","type"]}`:           true,
		`{"type":"ping","x":{"type":1},"y":{"type":1}}`: true,
		`{"type":"ping","":1}`:                          true,
		many + `}`:                                      true,
		`{"type":"ping","type":"ping"}`:                 false,
		`{"type":"ping","type":"ack","offset":1}`:       false,
		`{"type":"ping" , "type" :null}`:                false,
		`{"type":"ping","TYPE":"ack"}`:                  false,
		`{"type":"ping","t\u0079pe":"ack"}`:             false,
		`{"type":"ack","off\u0073et":1,"offſet":2}`:     false,
		`{"type":"ack","offset":1,"offſet":2}`:          false,
		`{"type":"ping","x":{"a":1,"a":2}}`:             false,
		`{"type":"ping","x":[{"a":1,"a":2}]}`:           false,
		many + `,"TYPE":1}`:                             false,
		many + `,"w":1}`:                                false,
		`{"type":"ping","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`: false, // too deep to tell
	} {
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s is no JSON", text)
		}
		if err := checkDistinct([]byte(text)); (err == nil) != distinct {
			t.Errorf("%s: %v", text, err)
		}
		if err := checkAllDistinct([]byte(text)); (err == nil) != distinct {
			t.Errorf("%s, thoroughly: %v", text, err)
		}
		_, err := DecodeClientMessage([]byte(text))
		if KindOf(err) == KindInvalid == distinct && strings.Contains(text, `"ping"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzDistinct: the quick way says what the thorough one does.
func FuzzDistinct(f *testing.F) {
	f.Add([]byte(`{"type":"ping","TYPE":"ack"}`))
	f.Add([]byte(`{"a":"\"b\":","b":{"c":[1,{"d":null}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if UnmarshalObject(data, &object) != nil {
			return
		}
		quick, thorough := checkDistinct(data), checkAllDistinct(data)
		if (quick == nil) != (thorough == nil) {
			t.Errorf("%s: %v, but %v", data, quick, thorough)
		}
	})
}

func BenchmarkDecodeAck(b *testing.B) {
	data := []byte(`{"type":"ack","offset":1234567890}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeClientMessage(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckDistinct(b *testing.B) {
	data := []byte(`{"type":"ack","offset":1234567890}`)
	b.ReportAllocs()
	for b.Loop() {
		if checkDistinct(data) != nil {
			b.Fatal("not distinct")
		}
	}
}
