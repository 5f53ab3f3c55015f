package chatapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// asking is the state of a conversation with an open question.
var asking = protocol.ChatState{Run: protocol.RunRunning, CommandID: "cmd_1", Provider: "claude", BeganAt: 1, Pending: []protocol.Pending{
	{RequestID: "apr_1", ToolName: "Bash", Input: json.RawMessage(`{}`), SessionID: conv, ReceivedAt: "2026-06-11T07:07:06.005Z", Revision: 3},
}}

// TestDecide: an answer is a signed decision about the question as it was shown.
// It is about weakness 7 in deploy/e2e/README.md.
func TestDecide(t *testing.T) {
	w := newWorld(t)
	w.state = asking
	executed := make(chan *jws.Command, 8)
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("bob", protocol.CapApprove))
	u.settle(asking, protocol.Lease{})
	for _, tt := range []struct{ members, want string }{
		{`"allow":true`, `"decision":"allow_once"`},
		{`"allow":true,"message":"m","updatedInput":{"a":1},"rememberEntry":"Bash(git:*)"`, `"decision":"allow_once","updatedInput":{"a":1},"remember":"Bash(git:*)"`},
		{`"allow":1,"remember":"session"`, `"decision":"allow_always"`},
		{`"allow":false,"message":"no","updatedInput":{"a":1},"rememberEntry":"Bash"`, `"decision":"deny","message":"no"`},
		{`"message":"` + strings.Repeat("é", maxDenial) + `"`, `"decision":"deny","message":"` + strings.Repeat("é", maxDenial/2) + `"`},
	} {
		u.say(`{"type":"chat.permission-response","requestId":"apr_1",` + tt.members + `}`)
		c := <-executed
		if want := `{"kind":"tool.decide","approval":"apr_1","revision":3,` + tt.want + `}`; string(c.Op) != want {
			t.Errorf("%s\nwant %s", c.Op, want)
		}
	}
	carol := w.join(caps("carol", protocol.CapChat))
	carol.settle(asking, protocol.Lease{})
	carol.say(`{"type":"chat.permission-response","requestId":"apr_1","allow":true}`)
	carol.refused("FORBIDDEN", "null", "")
	tab := w.join(caps("bob", protocol.CapApprove)) // follows nothing
	tab.say(`{"type":"chat.permission-response","requestId":"apr_1"}`)
	if c := <-executed; !strings.Contains(string(c.Op), `"decision":"deny"`) {
		t.Errorf("%s", c.Op)
	}
	w.refuses(protocol.ChatFault{Code: protocol.ChatNoActiveRun, Text: "somebody was first"}) // a conflict: silence
	u.say(`{"type":"chat.permission-response","requestId":"apr_1","allow":true}`)
	w.mu.Lock()
	w.sign = func(dispatch.SignRequest) (int, string) { return http.StatusServiceUnavailable, "" }
	w.mu.Unlock()
	u.say(`{"type":"chat.permission-response","requestId":"apr_1","allow":true}`)
	u.refused("UNAVAILABLE", "null", "")
}
