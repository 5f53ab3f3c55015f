package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestValidConversation(t *testing.T) {
	for id, want := range map[ConversationID]bool{
		"5b0d8d43-6c1a-4dd5-9a2e-7f3b1c2d4e5f": true, "a": true, "_": true, ".a": true, "...": true, "a..b": true, "A-_.9": true,
		ConversationID(strings.Repeat("x", 120)): true,
		ConversationID(strings.Repeat("x", 121)): false,
		"":                                       false, ".": false, "..": false, "a/b": false, "../a": false, `a\b`: false, "a b": false, "a\n": false, "é": false, "a\x00": false,
	} {
		if ValidConversation(id) != want {
			t.Errorf("%.20q: %v", id, !want)
		}
	}
}

// TestChatPieces: an event that is cut into pieces is whole again, also the
// largest, and each piece fits one write.
func TestChatPieces(t *testing.T) {
	for _, size := range []int{1, MaxChatPiece, MaxChatPiece + 1, MaxChatEvent} {
		event := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		var stream []byte
		for rest := event; len(rest) > 0; {
			n := min(len(rest), MaxChatPiece)
			piece := mustAppend(t, Chat{Seq: 9, Left: len(rest) - n, Origin: "cmd_1", Bytes: rest[:n]})
			if len(piece) > MaxStreamWrite {
				t.Fatalf("a piece of %d bytes", len(piece))
			}
			stream, rest = append(stream, piece...), rest[n:]
		}
		var got []byte
		for frames := NewFrameReader(bytes.NewReader(stream)); ; {
			f, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			m, err := Decode(f)
			if err != nil {
				t.Fatal(err)
			}
			piece := m.(Chat)
			if got = append(got, piece.Bytes...); piece.Seq != 9 || piece.Origin != "cmd_1" || piece.Left != size-len(got) {
				t.Fatalf("piece %d %q, %d left", piece.Seq, piece.Origin, piece.Left)
			}
			if piece.Left == 0 {
				break
			}
		}
		if !bytes.Equal(got, event) {
			t.Errorf("an event of %d bytes has changed", size)
		}
	}
	for _, m := range []Chat{
		{Seq: 1, Left: MaxChatEvent - 1, Bytes: []byte("xx")},
		{Seq: 1, Bytes: make([]byte, MaxChatPiece+1)},
	} {
		if _, err := Append(nil, m); !errors.Is(err, ErrMessage) {
			t.Errorf("%d bytes, %d left: %v", len(m.Bytes), m.Left, err)
		}
	}
}

// FuzzChat: what decodes as a piece is encoded to the same bytes.
func FuzzChat(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x03cmd{}"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x00\x07\xff\xff\x00{"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\xff"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := Decode(Frame{FrameChat, payload})
		if err != nil {
			return
		}
		c := m.(Chat)
		if c.Seq == 0 || len(c.Bytes) == 0 || len(c.Bytes) > MaxChatPiece || c.Left+len(c.Bytes) > MaxChatEvent || c.Origin != "" && !ValidID(c.Origin) {
			t.Fatalf("%+v", c)
		}
		if wire := mustAppend(t, c); !bytes.Equal(wire[frameHeaderBytes:], payload) {
			t.Fatalf("%x, then %x", payload, wire[frameHeaderBytes:])
		}
	})
}

// TestChatFault: a fault's code and text are in the error that carries it.
func TestChatFault(t *testing.T) {
	err := ChatFault{ChatRunInProgress, `Session "c" already has a run in progress.`}.Error()
	if err.Kind != KindConflict || err.Error() != `RUN_IN_PROGRESS: Session "c" already has a run in progress.` {
		t.Errorf("%v", err)
	}
}

// wholeEvent has every member that an event can have.
func wholeEvent() ChatEvent {
	raw := json.RawMessage(`{"a":[1]}`)
	return ChatEvent{
		ID: "e", SessionID: "c", Timestamp: "2026-01-02T03:04:05.000Z", Provider: "claude", Kind: ChatText, Seq: 1 << 60,
		Role: "user", Content: new("hi <b>"), Images: []ChatImage{{"a", "data:,", 1, "image/png"}}, From: &ChatFrom{UserID: "usr_a", Name: "a b"},
		ChatLocal: ChatLocal{"d", "/n", "m", "x y", true, true, true},
		ToolName:  "Bash", ToolInput: raw, ToolID: "t", ToolResult: &ChatToolOutput{"out", true, raw}, ParentToolUseID: "p",
		IsError: new(false), ToolUseResult: raw, SubagentTools: raw,
		Text: "token_budget", Tokens: new(int64(7)), CanInterrupt: new(true),
		TokenBudget:  &TokenBudget{1, 2, 3, 4, 5, 6, TokenBreakdown{7, 8}},
		ChatQuestion: ChatQuestion{"apr_1", raw, 1, "2026-01-02T03:05:00.000Z", CancelledTimeout, AllowOnce},
		ChatEnd:      ChatEnd{"c", new(0), new(true), new(false)},
		CommandID:    "cmd_1", ClientMessageID: "m1",
	}
}

// TestChatEvent: an event comes back as it was, whatever it has; one with
// nothing has the members that every client reads, and no other.
func TestChatEvent(t *testing.T) {
	whole := wholeEvent()
	for _, e := range []ChatEvent{whole, {Kind: ChatStreamEnd}} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var again ChatEvent
		if err := UnmarshalStrict(data, &again); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%s: %+v, %v", data, again, err)
		}
	}
	var set map[string]json.RawMessage
	data, err := json.Marshal(whole)
	if err != nil || json.Unmarshal(data, &set) != nil || len(set) != len(members(ChatEvent{})) {
		t.Errorf("%d members of %d: %s, %v", len(set), len(members(ChatEvent{})), data, err)
	}
	least, err := json.Marshal(ChatEvent{ID: "e", SessionID: "c", Timestamp: "t", Provider: "claude", Kind: ChatStreamEnd})
	if want := `{"id":"e","sessionId":"c","timestamp":"t","provider":"claude","kind":"stream_end"}`; err != nil || string(least) != want {
		t.Errorf("%s, %v", least, err)
	}
	// A run that succeeded and a text of nothing say so.
	end, err := json.Marshal(ChatEvent{Kind: ChatComplete, Content: new(""), ChatEnd: ChatEnd{ExitCode: new(0), Aborted: new(false)}})
	if err != nil || !strings.Contains(string(end), `"content":"","exitCode":0,"aborted":false`) {
		t.Errorf("%s, %v", end, err)
	}
}

// FuzzChatEvent: an event that is read is written as one that reads the same.
func FuzzChatEvent(f *testing.F) {
	whole, err := json.Marshal(wholeEvent())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"kind":"text","content":"","toolInput":null,"tokens":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e, again ChatEvent
		if UnmarshalObject(data, &e) != nil {
			return
		}
		once, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := UnmarshalObject(once, &again); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s, then %s, %v", once, twice, err)
		}
	})
}
