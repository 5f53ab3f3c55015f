package services

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestSessionLists: each list is served to those whose grant carries the
// capability for this session, and to nobody else.
func TestSessionLists(t *testing.T) {
	var grant *jws.Grant
	grantOf := func(*http.Request) *jws.Grant { return grant }
	mux := http.NewServeMux()
	(&Approvals{Grant: grantOf, List: func(s protocol.SessionID) protocol.ApprovalList {
		return protocol.ApprovalList{Epoch: 1, Offset: 4, Approvals: []protocol.Approval{
			{ID: "apr_1", Revision: 1, Kind: protocol.ApprovalEgress, SessionID: s, PTYID: "pty_1", Host: "a.example", Port: 443, State: protocol.ApprovalPending, LeftMs: 5},
			{ID: "apr_2", Revision: 1, Kind: protocol.ApprovalBroker, SessionID: s, Host: "a.example", Secret: "TOKEN", State: protocol.ApprovalPending, LeftMs: 5},
			{ID: "apr_3", Revision: 2, Kind: protocol.ApprovalEgress, SessionID: s, Host: "b.example", Port: 443, State: protocol.ApprovalExpired},
		}}
	}}).Register(mux)
	(&Env{Grant: grantOf, Names: func(protocol.SessionID) protocol.EnvList { return protocol.EnvList{} }}).Register(mux)
	(&Egress{Grant: grantOf, Rules: func(protocol.SessionID) protocol.EgressRules {
		return protocol.EgressRules{State: protocol.EgressAdvisory, Why: "not root"}
	}}).Register(mux)
	for _, tt := range []struct {
		path       string
		capability protocol.Capability
		want       string
	}{
		{"approvals", protocol.CapApprove, `{"approvals":[{"id":"apr_1","revision":1,"kind":"egress","session_id":"ses_1"`},
		{"egress/pending", protocol.CapApprove,
			`{"pending":[{"domain":"a.example","port":443,"request_id":"apr_1","pty_id":"pty_1","revision":1,"left_ms":5}]}`},
		{"env", protocol.CapEnv, `{"variables":[]}`},
		{"egress/allowlist", protocol.CapApprove, `{"state":"advisory","why":"not root","defaults":[],"user":[],"denied":[]}`},
	} {
		get := func(session string, g *jws.Grant) *httptest.ResponseRecorder {
			grant = g
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/sessions/"+session+"/"+tt.path, nil))
			return w
		}
		only := []protocol.Capability{tt.capability}
		w := get("ses_1", &jws.Grant{Session: "ses_1", Caps: only})
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), tt.want) || w.Header().Get("Cache-Control") != "no-store" ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
		}
		var others []protocol.Capability
		for _, c := range protocol.Capabilities {
			if c != tt.capability {
				others = append(others, c)
			}
		}
		for session, g := range map[string]*jws.Grant{
			"ses_1": {Session: "ses_1", Caps: others}, "ses_2": {Session: "ses_1", Caps: only}, "ses_3": nil, "%20": {Caps: only},
		} {
			if w := get(session, g); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `"AuthError"`) {
				t.Errorf("%s of %s under %+v: %d %s", tt.path, session, g, w.Code, w.Body)
			}
		}
	}
}
