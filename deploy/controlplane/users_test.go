package controlplane

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func TestMe(t *testing.T) {
	p := newPlane(t)
	all := []any{}
	for _, c := range protocol.Capabilities {
		all = append(all, string(c))
	}
	for _, tt := range []struct {
		token, id, name string
		caps            []any
	}{
		{aliceToken, "usr_alice", "Alice", all},
		{bobToken, "usr_bob", "Bob", []any{"view", "control"}},
		{carolToken, "usr_carol", "Carol", []any{"view"}},
		{daveToken, "usr_dave", "Dave", nil},
	} {
		sessions := []any{}
		if tt.caps != nil {
			sessions = append(sessions, map[string]any{
				"id": "ses_1", "dashboard": "dash_1", "sandbox": "sb_1", "capabilities": tt.caps,
			})
		}
		want := map[string]any{
			"user": map[string]any{"id": tt.id, "name": tt.name}, "sessions": sessions, "revision": "rev1",
		}
		if body := p.want(call{"GET", "/auth/me", tt.token, "", nil}, http.StatusOK, ""); !reflect.DeepEqual(body, want) {
			t.Errorf("%s: %v, want %v", tt.name, body, want)
		}
	}
}

func TestGrant(t *testing.T) {
	p := newPlane(t)
	keys := p.keys()
	for _, tt := range []struct {
		name, token, body string
		caps              []protocol.Capability
		ptys              []string
	}{
		{"all of an owner", aliceToken, `{"session_id":"ses_1"}`, protocol.Capabilities, []string{"*"}},
		{"all of a viewer", carolToken, `{"session_id":"ses_1"}`, []protocol.Capability{"view"}, []string{"*"}},
		{"one terminal", bobToken, `{"session_id":"ses_1","pty_id":"pty_1"}`, []protocol.Capability{"view", "control"}, []string{"pty_1"}},
		{"less than all", aliceToken, `{"session_id":"ses_1","capabilities":["shell","view","shell"]}`, []protocol.Capability{"view", "shell"}, []string{"*"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := p.want(call{"POST", "/grants", tt.token, tt.body, nil}, http.StatusOK, "")
			g, err := keys.Grant(t.Context(), body["grant"].(string))
			if err != nil {
				t.Fatal(err)
			}
			if g.Dashboard != "dash_1" || g.Sandbox != "sb_1" || g.Session != "ses_1" ||
				!slices.Equal(g.Caps, tt.caps) || !slices.Equal(g.PTYs, tt.ptys) {
				t.Errorf("grant %+v, want caps %v, ptys %v", g, tt.caps, tt.ptys)
			}
			want := p.clock.Now().Add(protocol.MaxGrantTTL)
			if !g.Expires().Equal(want) || body["expires_at"] != want.Format(time.RFC3339) {
				t.Errorf("expires %v and says %v, want %v", g.Expires(), body["expires_at"], want)
			}
		})
	}
}

func TestGrantRefused(t *testing.T) {
	p := newPlane(t)
	for _, tt := range []struct {
		token, body string
		status      int
		name        string
	}{
		{bobToken, `{"session_id":"ses_1","capabilities":["view","shell"]}`, 403, "AuthError"},
		{carolToken, `{"session_id":"ses_1","capabilities":["control"]}`, 403, "AuthError"},
		{aliceToken, `{"session_id":"ses_2"}`, 404, "TargetError"},
		{daveToken, `{"session_id":"ses_1"}`, 404, "TargetError"},
		{aliceToken, `{}`, 400, "RequestError"},
		{aliceToken, `{"session_id":"../x"}`, 400, "RequestError"},
		{aliceToken, `{"session_id":"ses_1","pty_id":"*"}`, 400, "RequestError"},
		{aliceToken, `{"session_id":"ses_1","capabilities":[]}`, 400, "RequestError"},
		{aliceToken, `{"session_id":"ses_1","capabilities":["root"]}`, 400, "RequestError"},
		{aliceToken, `{"session_id":"ses_1","capabilities":"view"}`, 400, "RequestError"},
	} {
		p.want(call{"POST", "/grants", tt.token, tt.body, nil}, tt.status, tt.name)
	}
}

// TestFound10GrantsPerPerson: beyond so many live grants a person is told when
// to come back, and nothing is voided for them.
func TestFound10GrantsPerPerson(t *testing.T) {
	p := newPlane(t)
	const ses1 = `{"session_id":"ses_1"}`
	first := p.grant(carolToken, ses1)
	p.clock.Advance(time.Minute)
	for range DefaultGrantsPerPerson - 1 {
		p.grant(carolToken, ses1)
	}
	status, _, header := p.do(call{"POST", "/grants", carolToken, ses1, nil})
	wait, err := strconv.Atoi(header.Get("Retry-After"))
	if left := protocol.MaxGrantTTL - time.Minute; status != http.StatusTooManyRequests || err != nil || wait != int(left/time.Second) {
		t.Errorf("status %d, Retry-After %q, want %v", status, header.Get("Retry-After"), left)
	}
	if list := p.revocations(); list.Number != 0 {
		t.Errorf("something was voided: %+v", list)
	}
	if _, err := p.keys().Grant(t.Context(), first); err != nil {
		t.Errorf("the first one: %v", err)
	}
	p.grant(bobToken, ses1)
	p.clock.Advance(time.Duration(wait) * time.Second)
	p.grant(carolToken, ses1)
}
