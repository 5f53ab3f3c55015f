package chatlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// TestLongEvents: an event that is too long keeps its shape, and the beginnings
// and ends of its longest texts.
func TestLongEvents(t *testing.T) {
	long := func(piece string, n int) string { return strings.Repeat(piece, n/len(piece)) }
	raw := func(text string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"file":"a.txt","a":[1,"%s"],"b":"short"}`, text))
	}
	for name, e := range map[string]*protocol.ChatEvent{
		"text":        said("begin " + long("x", 2<<20) + " end"),
		"umlauts":     said("begin " + long("ü", 2<<20) + " end"),
		"emoji":       said("begin " + long("😀", 2<<20) + " end"),
		"quotes":      said("begin " + long(`\"`, 2<<20) + " end"),
		"controls":    said("begin " + long("\x00\x1b\n", 2<<20) + " end"),
		"not UTF-8":   said("begin " + long("\xff", 2<<20) + " end"),
		"input":       {Kind: protocol.ChatToolUse, ToolInput: raw(long("y", 1<<20))},
		"surrogates":  {Kind: protocol.ChatToolUse, ToolInput: raw(long(`\ud83d\ude00`, 1<<20))},
		"backslashes": {Kind: protocol.ChatToolUse, ToolInput: raw(long(`\\`, 1<<20))},
		"several":     {Kind: protocol.ChatToolUse, ToolInput: raw(long("y", 400<<10)), ToolResult: &protocol.ChatToolOutput{Content: long("z", 400<<10)}},
		"wide":        {Kind: protocol.ChatToolUse, ToolInput: json.RawMessage("[" + long("1,", 1<<20) + "1]")},
		"many":        {Kind: protocol.ChatToolUse, ToolInput: json.RawMessage("[" + long(`"ab",`, 1<<20) + `"ab"]`)},
		"names":       {Kind: protocol.ChatToolUse, ToolInput: json.RawMessage(`{"` + long("n", 1<<20) + `":1}`)},
	} {
		e.ID, e.Seq, e.SessionID = "id", 7, conversation
		text, cut, err := encode(e)
		if err != nil || !cut || len(text) > protocol.MaxChatEvent || !utf8.Valid(text) {
			t.Errorf("%s: %d bytes, cut %t, %v", name, len(text), cut, err)
			continue
		}
		if !bytes.Contains(text, []byte("bytes cut")) {
			t.Errorf("%s: it doesn't say so", name)
		}
		if seq, ok := seqOf(text); !ok || seq != 7 {
			t.Errorf("%s: number %d", name, seq)
		}
		var back protocol.ChatEvent
		if err := json.Unmarshal(text, &back); err != nil || back.Kind != e.Kind || back.ID != "id" || back.SessionID != conversation {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Kind == protocol.ChatText {
			if c := *back.Content; !strings.HasPrefix(c, "begin ") || !strings.HasSuffix(c, " end") || len(text) < protocol.MaxChatEvent-1000 {
				t.Errorf("%s: %.20q … of %d bytes", name, c, len(text))
			}
			if name != "not UTF-8" && strings.ContainsRune(*back.Content, utf8.RuneError) {
				t.Errorf("%s: half a character", name)
			}
		}
		if name == "surrogates" && bytes.Contains(back.ToolInput, []byte(`\ude00`)) && !json.Valid(back.ToolInput) {
			t.Errorf("%s: %.100s", name, back.ToolInput)
		}
	}
}

// TestRefused: what is no JSON is refused, and nothing is stored.
func TestRefused(t *testing.T) {
	_, l := openSmall(t, Options{Dir: t.TempDir()}, nil)
	for name, input := range map[string]string{
		"no JSON": "{", "two": "1 2", "deep": strings.Repeat("[", 9999) + strings.Repeat("]", 9999), "deeper": strings.Repeat("[", 1<<20),
	} {
		e := &protocol.ChatEvent{Kind: protocol.ChatToolUse, ToolResult: &protocol.ChatToolOutput{ToolUseResult: json.RawMessage(input)}}
		if err := l.Append(false, said("one"), e); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if at := l.Position(); at.Last != 0 {
		t.Errorf("%+v", at)
	}
	raw := json.RawMessage("{\n \"a\": \"\xff<b>\u2028\" }")
	must(t, l.Append(false, &protocol.ChatEvent{Kind: protocol.ChatToolUse, ToolInput: raw}))
	if got := all(t, l, 0); len(got) != 1 || !json.Valid(got[0].JSON) || !utf8.Valid(got[0].JSON) || bytes.ContainsAny(got[0].JSON, "\n") {
		t.Errorf("%s", got[0].JSON)
	}
}

// TestEveryMember: whatever members a piece of text has, all of them are stored.
func TestEveryMember(t *testing.T) {
	for _, kind := range []protocol.ChatKind{protocol.ChatStreamDelta, protocol.ChatStreamEnd} {
		for i := range reflect.TypeFor[protocol.ChatEvent]().NumField() {
			e := &protocol.ChatEvent{ID: "id", SessionID: conversation, Timestamp: "now", Provider: "claude", Seq: 7, Content: new("a <b> \xff\u2028")}
			fill(t, reflect.ValueOf(e).Elem().Field(i))
			e.Kind = kind
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(false)
			must(t, enc.Encode(e))
			if got, _, err := encode(e); err != nil || string(got)+"\n" != want.String() {
				t.Errorf("%s is stored, %v, want %s", got, err, want.String())
			}
		}
	}
}

// fill gives v, and all of its fields, a value that isn't zero.
func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.Set(reflect.ValueOf(json.RawMessage(`{"a":1}`)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint64:
		v.SetUint(3)
	default:
		t.Fatalf("a member of kind %s", v.Kind())
	}
}

// BenchmarkEncode encodes an event of each kind that is told most.
func BenchmarkEncode(b *testing.B) {
	for name, e := range map[string]*protocol.ChatEvent{
		"piece of text": {Kind: protocol.ChatStreamDelta}, "use of a tool": {Kind: protocol.ChatToolUse, ToolName: "Bash", ToolInput: json.RawMessage(`{"command":"ls"}`)},
	} {
		e.ID, e.SessionID, e.Timestamp, e.Provider, e.Seq, e.Content = string(conversation), conversation, "2026-01-02T03:04:05.678Z", "claude", 7, new("a word ")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := encode(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzShorten: what is shortened is JSON of the same names, and short enough.
func FuzzShorten(f *testing.F) {
	f.Add(`"a \ud83d\ude00 b"`, 1100)
	f.Add(`{"a":["ü😀\\\"",{"b":null}]}`, 1200)
	f.Add(`"`+strings.Repeat(`\\\"\u00fc`, 300)+`"`, 1024)
	f.Fuzz(func(t *testing.T, input string, limit int) {
		limit = max(1500, limit%4000)
		var packed bytes.Buffer
		if json.Compact(&packed, []byte(input)) != nil || !utf8.ValidString(input) {
			return
		}
		from, err := json.Marshal(protocol.ChatEvent{Kind: protocol.ChatToolUse, Seq: 3, ToolInput: packed.Bytes()})
		if err != nil || !json.Valid(from) {
			return
		}
		short := shorten(from, limit)
		if !json.Valid(short) || !utf8.Valid(short) {
			t.Fatalf("%q of %q", short, from)
		}
		if seq, ok := seqOf(short); !ok || seq != 3 {
			t.Fatalf("%q", short)
		}
		if len(from) <= limit && !bytes.Equal(short, from) || len(from) > limit && len(short) > limit {
			t.Fatalf("%d bytes of %d, at most %d", len(short), len(from), limit)
		}
	})
}

// FuzzScan: what is found of a segment is what its lines say, and cutting it
// there changes nothing.
func FuzzScan(f *testing.F) {
	g := &segment{n: 1, epoch: 5, first: 3, after: 2}
	head := string(g.header(conversation, "boot"))
	f.Add(head + `{"seq":3}` + "\n" + `{"seq":4,"commandId":"c"}` + "\n")
	f.Add(head + `{"seq":3}` + "\n" + `{"seq":4`)
	f.Add(head + "\x00\x00\n\x00")
	f.Add(head[:20])
	f.Fuzz(func(t *testing.T, text string) {
		c, err := scan(strings.NewReader(text), conversation)
		if err != nil {
			return
		}
		if c.bytes > int64(len(text)) || !c.torn && c.bytes != int64(len(text)) {
			t.Fatalf("%+v of %d bytes", c, len(text))
		}
		whole := text[:c.bytes]
		again, err := scan(strings.NewReader(whole), conversation)
		if err != nil || again.torn || again.last != c.last || again.bytes != c.bytes {
			t.Fatalf("%+v, then %+v %v", c, again, err)
		}
		if lines := uint64(strings.Count(whole, "\n")); lines != c.last+1-c.header.First+1 {
			t.Fatalf("%d lines, %+v", lines, c)
		}
	})
}
