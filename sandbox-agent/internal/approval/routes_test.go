package approval

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// TestRoutes: all approvals of a session, and the connections that wait.
func TestRoutes(t *testing.T) {
	l, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, r := range []Request{
		{Session: "ses_1", PTY: "pty_1", Kind: protocol.ApprovalEgress, Host: "a.example", Port: 443},
		{Session: "ses_1", Kind: protocol.ApprovalBroker, Host: "a.example", Secret: "TOKEN"},
		{Session: "ses_1", Kind: protocol.ApprovalEgress, Host: "b.example", Port: 443},
		{Session: "ses_2", Kind: protocol.ApprovalEgress, Host: "c.example", Port: 443},
	} {
		a, err := l.Ask(r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Host == "b.example" {
			if _, _, err := l.Decide(protocol.Approval{ID: a.ID(), Revision: 1, Kind: r.Kind, SessionID: r.Session, Decision: protocol.Deny}); err != nil {
				t.Fatal(err)
			}
		}
	}
	mux := http.NewServeMux()
	l.Routes(mux)
	get := func(path string) string {
		r := httptest.NewRequest(http.MethodGet, "/sessions/ses_1/"+path, nil)
		grant := &jws.Grant{Session: "ses_1", Caps: []protocol.Capability{protocol.CapApprove}}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r.WithContext(route.WithGrant(r.Context(), grant)))
		return w.Body.String()
	}
	if all := get("approvals"); strings.Count(all, `"state":"pending"`) != 2 || strings.Count(all, `"state":"decided"`) != 1 || strings.Contains(all, "c.example") {
		t.Error(all)
	}
	waiting := get("egress/pending")
	if !strings.HasPrefix(waiting, `{"pending":[{"domain":"a.example","port":443,"request_id":"`) || !strings.Contains(waiting, `"pty_id":"pty_1","revision":1,"left_ms":`) ||
		strings.Count(waiting, "request_id") != 1 {
		t.Error(waiting)
	}
}
