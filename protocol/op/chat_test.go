package op

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestChatOps: what each operation on conversations takes, and what it refuses.
func TestChatOps(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	list := func(n int) string { return `["` + strings.Repeat(`a","`, n-1) + `a"]` }
	const sum = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"
	for _, tt := range []struct {
		op   string
		good bool
	}{
		{`{"kind":"chat.create","provider":"claude","projectPath":"/w"}`, true},
		{`{"kind":"chat.create","provider":"claude","projectPath":"` + long(4096) + `","title":"` + long(500) + `"}`, true},
		{`{"kind":"chat.create","provider":"claude"}`, false},
		{`{"kind":"chat.create","projectPath":"/w"}`, false},
		{`{"kind":"chat.create","provider":"` + long(65) + `","projectPath":"/w"}`, false},
		{`{"kind":"chat.create","provider":"claude","projectPath":"` + long(4097) + `"}`, false},
		{`{"kind":"chat.create","provider":"claude","projectPath":"/w","title":"` + long(501) + `"}`, false},
		{`{"kind":"chat.create","provider":"claude","projectPath":"/w","conversation":"../x"}`, false},

		{`{"kind":"chat.send","conversation":"c","message":{"content":""}}`, true},
		{`{"kind":"chat.send","conversation":"c","messageSha256":"` + sum + `"}`, true},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"clientMessageId":"` + long(128) + `"}`, true},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":{"allowedTools":` + list(128) + `}}`, true},
		{`{"kind":"chat.send","message":{"content":"a"}}`, false},
		{`{"kind":"chat.send","conversation":"..","message":{"content":"a"}}`, false},
		{`{"kind":"chat.send","conversation":"c"}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"messageSha256":"` + sum + `"}`, false},
		{`{"kind":"chat.send","conversation":"c","messageSha256":"` + sum[2:] + `"}`, false},
		{`{"kind":"chat.send","conversation":"c","messageSha256":"` + sum[:63] + `g"}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"clientMessageId":"` + long(129) + `"}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":{"model":"` + long(129) + `"}}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":{"cwd":"` + long(4097) + `"}}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":{"allowedTools":` + list(129) + `}}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":{"disallowedTools":[""]}}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":{"disallowedTools":["` + long(513) + `"]}}`, false},
		{`{"kind":"chat.send","conversation":"c","message":{"content":"a","Content":"b"}}`, false},

		{`{"kind":"chat.abort","conversation":"c"}`, true},
		{`{"kind":"chat.abort"}`, false},

		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once"}`, true},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny","message":"` + long(4096) + `"}`, true},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","updatedInput":{"a":"` + long(32<<10-8) + `"}}`, true},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","updatedInput":{"a":"` + long(32<<10-7) + `"}}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","updatedInput":"a"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","message":"a"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","remember":"` + long(513) + `"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny","message":"` + long(4097) + `"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny","updatedInput":{}}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny","remember":"Bash"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny_always"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow"}`, false},
		{`{"kind":"tool.decide","approval":"apr_1","revision":0,"decision":"deny"}`, false},
		{`{"kind":"tool.decide","approval":"a b","revision":1,"decision":"deny"}`, false},
	} {
		_, body, err := Decode(json.RawMessage(tt.op))
		if err == nil {
			err = body.Check()
		}
		if kind := protocol.KindOf(err); (err == nil) != tt.good || err != nil && kind != protocol.KindInvalid && kind != protocol.KindTooLarge {
			t.Errorf("%.120s: %v", tt.op, err)
		}
	}
}

// TestLifts: whoever has tools used without a question needs approve, and nobody
// says what a sender is called.
// It is about weakness 8 in deploy/e2e/README.md.
func TestLifts(t *testing.T) {
	for options, want := range map[string][]protocol.Capability{
		`{}`: nil, `{"permissionMode":"plan"}`: nil, `{"disallowedTools":["Bash"]}`: nil, `{"skipPermissions":false}`: nil,
		`{"skipPermissions":true}`:               {protocol.CapApprove},
		`{"permissionMode":"bypassPermissions"}`: {protocol.CapApprove},
		`{"allowedTools":["Read"]}`:              {protocol.CapApprove},
	} {
		_, body, err := Decode(json.RawMessage(fmt.Sprintf(`{"kind":"chat.send","conversation":"c","message":{"content":"a"},"options":%s}`, options)))
		if err != nil {
			t.Fatal(err)
		}
		if needs, err := body.(*ChatSend).AskedBy("usr_a"); err != nil || !slices.Equal(needs, want) {
			t.Errorf("%s needs %v, %v", options, needs, err)
		}
	}
	named := ChatSend{Conversation: "c", Message: &protocol.ChatMessage{}, SenderName: "Bob"}
	if _, err := named.AskedBy("usr_a"); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("under another name: %v", err)
	}
}
