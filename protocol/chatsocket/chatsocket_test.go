package chatsocket

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// Members of a wrong type count as absent, as in the seed.
func TestRequests(t *testing.T) {
	long := strings.Repeat("é", protocol.MaxClientMessageID)
	for _, tt := range []struct {
		frame string
		want  Request
	}{
		{`{}`, Request{}},
		{`{"type":7}`, Request{}},
		{`{"Type":"chat.send"}`, Request{}}, // names are exact
		{`{"type":"chat.hello","type":"x"}`, Request{Type: "x"}},
		{`{"type":"chat.send","sessionId":" a ","content":"hi"}`, Request{Type: "chat.send", SessionID: "a", Content: "hi"}},
		{`{"type":"chat.send","sessionId":["a"],"content":{"a":1},"options":[]}`, Request{Type: "chat.send"}},
		{`{"type":"chat.send","clientMessageId":"` + long + `"}`, Request{Type: "chat.send", ClientMessageID: long}},
		{
			`{"type":"chat.send","options":{"model":" m ","permissionMode":"plan","cwd":"/w","skipPermissions":false,"sessionSummary":"s",` +
				`"toolsSettings":{"allowedTools":["Read",1,"",null],"disallowedTools":["Bash"],"skipPermissions":true},` +
				`"images":[{"name":"n","data":"data:image/png;base64,AA==","size":1.5,"mimeType":"image/png"},{"name":"none"},7]}}`,
			Request{Type: "chat.send", Images: []protocol.ChatImage{{Name: "n", Data: "data:image/png;base64,AA==", Size: 1, MimeType: "image/png"}}, Options: Options{
				Model: "m", PermissionMode: "plan", Cwd: "/w", AllowedTools: []string{"Read"}, DisallowedTools: []string{"Bash"}, SkipPermissions: true,
			}},
		},
		{`{"type":"chat.abort","sessionId":"a","content":"no member of it"}`, Request{Type: "chat.abort", SessionID: "a"}},
		{
			`{"type":"chat.subscribe","sessions":[{"sessionId":"a"},null,7,{"sessionId":" "},{"sessionId":"b","lastSeq":"5"},` +
				`{"sessionId":"c","lastSeq":-1},{"sessionId":"d","lastSeq":1e308},{"sessionId":"e","lastSeq":7.9},{"sessionId":"f","lastSeq":1e400},` +
				`{"sessionId":"g","lastSeq":0.5},{"sessionId":"h","lastSeq":9007199254740991}]}`,
			Request{Type: "chat.subscribe", Sessions: []Mark{
				{"a", 0}, {"b", 0}, {"c", 0}, {"d", math.MaxInt64}, {"e", 7}, {"f", 0}, {"g", 0}, {"h", 1<<53 - 1},
			}},
		},
		{`{"type":"chat.subscribe","sessions":{"sessionId":"a"}}`, Request{Type: "chat.subscribe"}},
		{
			`{"type":"chat.permission-response","requestId":"apr_1","allow":"no","updatedInput":{"a":1},"message":7,"rememberEntry":"Bash(git:*)"}`,
			Request{Type: "chat.permission-response", RequestID: "apr_1", Allow: true, UpdatedInput: json.RawMessage(`{"a":1}`), Remember: "Bash(git:*)"},
		},
		{
			`{"type":"chat.permission-response","requestId":"apr_1","allow":0,"updatedInput":[1],"message":"no","remember":"session"}`,
			Request{Type: "chat.permission-response", RequestID: "apr_1", Message: "no", ForSession: true},
		},
		{`{"type":"chat.hello","features":["a",1,"b"]}`, Request{Type: "chat.hello", Features: []string{"a", "b"}}},
		{`{"type":"chat.grant_control","sessionId":"a","to":"usr_1"}`, Request{Type: "chat.grant_control", SessionID: "a", To: "usr_1"}},
		{`{"type":"chat.reauth","grant":"a.b.c"}`, Request{Type: "chat.reauth", Grant: "a.b.c"}},
	} {
		if got, err := Decode([]byte(tt.frame)); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%.100s:\n%+v, %v, want\n%+v", tt.frame, got, err, tt.want)
		}
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	for _, frame := range []string{
		"", " ", "null", "7", `"chat.send"`, `[{"type":"chat.send"}]`, `{"type":`, `{"type":"x"} {}`, "{\"type\":\"\xff\"}",
		`{"type":"chat.subscribe","sessions":[{"sessionId":"a","lastSeq":NaN}]}`,
		strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
	} {
		_, err := Decode([]byte(frame))
		if fault, ok := ParseFault(err); !ok || fault != (protocol.ChatFault{Code: protocol.ChatInternalError, Text: "Invalid websocket payload"}) {
			t.Errorf("%.40q: %v", frame, err)
		}
	}
	q, err := Decode([]byte(`{"type":"chat.send","sessionId":"a","clientMessageId":"` + strings.Repeat("x", protocol.MaxClientMessageID+1) + `"}`))
	if fault, ok := ParseFault(err); !ok || fault.Code != protocol.ChatInternalError || q.SessionID != "a" {
		t.Errorf("a long clientMessageId: %+v, %v", q, err)
	}
}

// A deep frame is one like any other.
func TestDeepRequest(t *testing.T) {
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	q, err := Decode([]byte(`{"type":"chat.send","sessionId":"a","content":` + deep + `,"options":` + deep + `}`))
	if err != nil || !reflect.DeepEqual(q, Request{Type: TypeSend, SessionID: "a"}) {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestManyMarks(t *testing.T) {
	entries := strings.Repeat(`{"sessionId":"a"},`, 10_000)
	q, err := Decode([]byte(`{"type":"chat.subscribe","sessions":[` + strings.TrimSuffix(entries, ",") + `]}`))
	if err != nil || len(q.Sessions) != protocol.MaxChatFollowed || q.Ignored != 10_000-protocol.MaxChatFollowed {
		t.Errorf("%d, ignored %d, %v", len(q.Sessions), q.Ignored, err)
	}
}

// TestChatFaults: codes and texts, byte for byte (chat-and-shell-2.md 2.1).
func TestChatFaults(t *testing.T) {
	for _, tt := range []struct {
		code        protocol.ChatCode
		about, want string
	}{
		{protocol.ChatSessionIDRequired, TypeSend, "chat.send requires a sessionId."},
		{protocol.ChatSessionIDRequired, TypeAbort, "chat.abort requires a sessionId."},
		{protocol.ChatSessionNotFound, "ID", `Session "ID" was not found. Create it via POST /api/providers/sessions first.`},
		{protocol.ChatUnsupportedProvider, "P", `Provider "P" is not available.`},
		{protocol.ChatRunInProgress, "ID", `Session "ID" already has a run in progress.`},
		{protocol.ChatNoActiveRun, "ID", `Session "ID" has no active run.`},
		{protocol.ChatUnknownMessageType, "T", `Unknown message type "T".`},
		{protocol.ChatUnknownMessageType, "", `Unknown message type "".`},
		{protocol.ChatInternalError, "x", "Invalid websocket payload"},
	} {
		fault := NewFault(tt.code, tt.about)
		if fault.Text != tt.want {
			t.Errorf("%s: %q, want %q", tt.code, fault.Text, tt.want)
		}
		if back, ok := ParseFault(fault.Error()); !ok || back != fault {
			t.Errorf("%s comes back as %+v", tt.code, back)
		}
	}
	for code := range texts {
		if text := NewFault(code, strings.Repeat("é", 1000)).Text; text == "" || len(text) > 256 || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes", code, len(text))
		}
	}
	for _, err := range []error{nil, protocol.Errorf(protocol.KindConflict, "RUN_IN_PROGRESS"), protocol.Errorf(protocol.KindConflict, "other: text"), protocol.Fault(protocol.KindConflict, nil)} {
		if fault, ok := ParseFault(err); ok {
			t.Errorf("%v: %+v", err, fault)
		}
	}
}

func TestErrorFrame(t *testing.T) {
	at := time.Date(2026, 6, 11, 8, 7, 6, 5_999_999, time.FixedZone("", 3600))
	for session, want := range map[protocol.ConversationID]string{
		"ID": `{"kind":"protocol_error","code":"NO_ACTIVE_RUN","error":"Session \"ID\" has no active run.","sessionId":"ID","timestamp":"2026-06-11T07:07:06.005Z"}`,
		"":   `{"kind":"protocol_error","code":"NO_ACTIVE_RUN","error":"Session \"ID\" has no active run.","sessionId":null,"timestamp":"2026-06-11T07:07:06.005Z"}`,
	} {
		if got, err := json.Marshal(Frame(NewFault(protocol.ChatNoActiveRun, "ID"), session, at)); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"type":"chat.send","sessionId":"a","content":"b","options":{"images":[{"data":"x"}],"toolsSettings":{"allowedTools":["a"]}}}`,
		`{"type":"chat.subscribe","sessions":[{"sessionId":"a","lastSeq":-1.5e3}]}`,
		`{"type":"chat.permission-response","requestId":"a","allow":-0,"updatedInput":{}}`,
		`{"type":"chat.hello","features":["\ud800"]}`, "\xff", `{"type":"chat.send","clientMessageId":"a"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := Decode(data)
		if err != nil {
			if _, ok := ParseFault(err); !ok || protocol.KindOf(err) != protocol.KindInvalid {
				t.Fatalf("%v", err)
			}
			return
		}
		if utf8.RuneCountInString(q.ClientMessageID) > protocol.MaxClientMessageID || len(q.Sessions) > protocol.MaxChatFollowed ||
			len(q.Features) > maxFeatures || len(q.Images) > maxImages || strings.TrimSpace(string(q.SessionID)) != string(q.SessionID) {
			t.Fatalf("%+v", q)
		}
		for _, mark := range q.Sessions {
			if mark.SessionID == "" || mark.LastSeq > math.MaxInt64 {
				t.Fatalf("%+v", mark)
			}
		}
		if len(q.UpdatedInput) > 0 && !json.Valid(q.UpdatedInput) {
			t.Fatalf("%s", q.UpdatedInput)
		}
	})
}

// FuzzParseFault: whatever an agent says went wrong, a fault has a known code and
// all of the text, and makes a frame.
func FuzzParseFault(f *testing.F) {
	f.Add(`RUN_IN_PROGRESS: Session "c" already has a run in progress.`, "c")
	f.Add("INTERNAL_ERROR: ", "")
	f.Add("RUN_IN_PROGRESS:x", "\xff")
	f.Fuzz(func(t *testing.T, message, session string) {
		from := protocol.Errorf(protocol.KindConflict, "%s", message)
		fault, ok := ParseFault(from)
		if !ok {
			return
		}
		if _, known := texts[fault.Code]; !known || string(fault.Code)+": "+fault.Text != from.Error() {
			t.Fatalf("%q is %+v", message, fault)
		}
		frame, err := json.Marshal(Frame(fault, protocol.ConversationID(session), time.Unix(0, 0)))
		var again ErrorFrame
		if err != nil || json.Unmarshal(frame, &again) != nil || again.Code != fault.Code || (again.SessionID == nil) != (session == "") {
			t.Fatalf("%s, %v", frame, err)
		}
	})
}
