package chatapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// TestBadFrames: what is deep, broken or no text at all is refused, costs nobody the
// socket, and signs nothing.
func TestBadFrames(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice", protocol.CapChat))
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	binary := func(frame string) {
		if err := u.conn.Write(t.Context(), websocket.MessageBinary, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	const invalid = "Invalid websocket payload"
	u.say(`{"type":"chat.send","sessionId":"` + none + `","content":` + deep(1000) + `,"options":` + nested(1000) + `}`)
	u.refused("SESSION_NOT_FOUND", none, "")
	u.say(`{"type":` + nested(1000) + `}`)
	u.refused("UNKNOWN_MESSAGE_TYPE", "null", "")
	for _, frame := range []string{
		nested(100_000), deep(400_000), `{"type":"chat.send"`, "{\"type\":\"chat.send\",\"content\":\"\xc3\"}",
		`{"type":"chat.subscribe","sessions":[{"sessionId":"` + conv + `","lastSeq":NaN}]}`, "\x00\x01\xff",
	} {
		binary(frame)
		u.refused("INTERNAL_ERROR", "null", invalid)
	}
	u.sync()
	if n := len(w.ops()); n != 0 {
		t.Errorf("%d operations were signed", n)
	}
}

// TestBadMarks: a mark that is none counts as 0, and one beyond the head is told by
// a gap.
func TestBadMarks(t *testing.T) {
	w := newWorld(t)
	for mark, gap := range map[string]bool{
		"-1": false, "-1e308": false, `"5"`: false, "null": false, "[7]": false, "1e400": false, "0.5": false,
		"1": true, "5": true, "1e308": true, "9007199254740993": true, "18446744073709551616": true,
	} {
		t.Run(mark, func(t *testing.T) {
			w.t = t
			u := w.join(caps("alice"))
			u.say(fmt.Sprintf(`{"type":"chat.subscribe","sessions":[{"sessionId":%q,"lastSeq":%s}]}`, conv, mark))
			_, data, err := u.conn.Read(t.Context())
			var ack struct {
				Kind    string
				Gap     bool
				LastSeq *uint64
			}
			if err != nil || json.Unmarshal(data, &ack) != nil || ack.Kind != "chat_subscribed" || ack.Gap != gap || ack.LastSeq == nil || *ack.LastSeq != 0 {
				t.Errorf("%s, %v", data, err)
			}
		})
	}
	w.t = t
}

// TestForeignConversation: what a person's own session doesn't hold isn't there,
// whatever is asked of it.
// It is about weakness 7 in deploy/e2e/README.md.
func TestForeignConversation(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice", protocol.CapChat, protocol.CapApprove, protocol.CapAdmin))
	for _, tt := range []struct {
		kind string
		code protocol.ChatCode
		of   string
	}{
		{"chat.send", "SESSION_NOT_FOUND", none}, {"chat.abort", "NO_ACTIVE_RUN", none},
		{"chat.request_control", "SESSION_NOT_FOUND", none}, {"chat.revoke_control", "SESSION_NOT_FOUND", none},
	} {
		u.say(`{"type":"` + tt.kind + `","sessionId":"` + none + `","content":"x"}`)
		u.refused(tt.code, tt.of, "")
	}
	u.say(subscribe(none))
	u.acked(none) // as idle, as for any id
	u.say(`{"type":"chat.permission-response","requestId":"apr_foreign","allow":true}`)
	u.sync()
	if n := len(w.ops()); n != 0 {
		t.Errorf("%d operations were signed", n)
	}
}
