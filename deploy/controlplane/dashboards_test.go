package controlplane

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

func getAs(token, path string) call { return call{"GET", path, token, "", nil} }

func words[T ~string](list ...T) []any {
	all := []any{}
	for _, w := range list {
		all = append(all, string(w))
	}
	return all
}

// editorCaps are what an editor may do.
var editorCaps = words(protocol.CapView, protocol.CapControl, protocol.CapShell, protocol.CapAgent, protocol.CapFilesRead,
	protocol.CapFilesWrite, protocol.CapChat, protocol.CapMCP, protocol.CapPlugins, protocol.CapApprove, protocol.CapRecord, protocol.CapSync)

func TestDashboardLife(t *testing.T) {
	p := newPlane(t)
	made := p.want(call{"POST", "/dashboards", daveToken, `{"name":"Dave's"}`, nil}, http.StatusCreated, "")["dashboard"].(map[string]any)
	id := made["id"].(string)
	if made["name"] != "Dave's" || made["role"] != "owner" || len(made["capabilities"].([]any)) != len(protocol.Capabilities) || made["sandbox"] != nil {
		t.Errorf("made %v", made)
	}
	p.want(call{"PATCH", "/dashboards/" + id, daveToken, `{"name":"Ours"}`, nil}, http.StatusOK, "")
	list := p.want(getAs(daveToken, "/dashboards"), http.StatusOK, "")["dashboards"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["name"] != "Ours" {
		t.Errorf("dashboards %v", list)
	}
	for _, c := range []call{ // it doesn't exist for others
		getAs(aliceToken, "/dashboards/"+id),
		{"PATCH", "/dashboards/" + id, aliceToken, `{"name":"Mine"}`, nil},
		{"DELETE", "/dashboards/" + id, aliceToken, "", nil},
		getAs(aliceToken, "/dashboards/"+id+"/members"),
		getAs(aliceToken, "/dashboards/"+id+"/items"),
		getAs(aliceToken, "/dashboards/"+id+"/sessions"),
		getAs(aliceToken, "/dashboards/"+id+"/usage"),
		getAs(daveToken, "/dashboards/dash_1"),
		getAs(daveToken, "/dashboards/..%2fx"),
	} {
		p.want(c, http.StatusNotFound, "TargetError")
	}
	for _, name := range []string{``, ` x`, `a\nb`, strings.Repeat("x", 129), "\u0007"} {
		p.want(call{"POST", "/dashboards", daveToken, `{"name":"` + name + `"}`, nil}, http.StatusBadRequest, "RequestError")
	}
	p.nothing(call{"DELETE", "/dashboards/" + id, daveToken, "", nil})
	p.want(getAs(daveToken, "/dashboards/"+id), http.StatusNotFound, "TargetError")
}

// nothing makes a request that is answered without a body.
func (p *plane) nothing(c call) {
	p.t.Helper()
	w := p.serve(c)
	if w.Code != http.StatusNoContent || w.Body.Len() != 0 || w.Header().Get(web.RevisionHeader) == "" {
		p.t.Errorf("%s %s: %d %q, want 204", c.method, c.path, w.Code, w.Body)
	}
}

// TestMembers walks what each role may do with the members of a dashboard.
func TestMembers(t *testing.T) {
	p := newPlane(t)
	put := func(token, user, body string) call {
		return call{"PUT", "/dashboards/dash_1/members/" + user, token, body, nil}
	}
	for _, token := range []string{bobToken, carolToken} {
		p.want(put(token, "usr_dave", `{"role":"viewer"}`), http.StatusForbidden, "AuthError")
		p.want(call{"DELETE", "/dashboards/dash_1/members/usr_alice", token, "", nil}, http.StatusForbidden, "AuthError")
		p.want(call{"PATCH", "/dashboards/dash_1", token, `{"name":"x"}`, nil}, http.StatusForbidden, "AuthError")
		p.want(call{"DELETE", "/dashboards/dash_1", token, "", nil}, http.StatusForbidden, "AuthError")
	}
	p.want(put(aliceToken, "usr_dave", `{"role":"viewer"}`), http.StatusOK, "")
	p.want(call{"POST", "/invitations/dash_1/accept", daveToken, "", nil}, http.StatusOK, "")
	body := p.want(put(aliceToken, "usr_dave", `{"role":"editor"}`), http.StatusOK, "")
	if !reflect.DeepEqual(body["capabilities"], editorCaps) {
		t.Errorf("an editor may do %v, want %v", body["capabilities"], editorCaps)
	}
	body = p.want(put(aliceToken, "usr_dave", `{"role":"editor","capabilities":["shell","view"]}`), http.StatusOK, "")
	if !reflect.DeepEqual(body["capabilities"], []any{"view", "shell"}) {
		t.Errorf("a narrowed editor may do %v", body["capabilities"])
	}
	members := p.want(getAs(carolToken, "/dashboards/dash_1/members"), http.StatusOK, "")["members"].([]any)
	want := map[string]any{"user": "usr_bob", "name": "Bob", "role": "editor", "capabilities": []any{"view", "control"}, "state": "accepted"}
	if len(members) != 4 || !reflect.DeepEqual(members[1], want) {
		t.Errorf("members %v, want second %v", members, want)
	}
	for _, bad := range []string{
		`{}`, `{"role":"boss"}`, `{"role":"controller"}`, `{"role":"editor","capabilities":["shell"]}`,
		`{"role":"editor","capabilities":["view","admin"]}`, `{"role":"viewer","capabilities":["view","shell"]}`,
		`{"role":"editor","capabilities":["view","root"]}`, `{"role":"editor","capabilities":[]}`,
		`{"role":"owner","capabilities":["view"]}`,
	} {
		p.want(put(aliceToken, "usr_dave", bad), http.StatusBadRequest, "RequestError")
	}
	p.want(put(aliceToken, "usr_nobody", `{"role":"viewer"}`), http.StatusNotFound, "TargetError")
	p.want(put(aliceToken, "a%20b", `{"role":"viewer"}`), http.StatusNotFound, "TargetError")

	p.want(put(aliceToken, "usr_alice", `{"role":"viewer"}`), http.StatusConflict, "RequestError") // the last owner
	p.want(call{"DELETE", "/dashboards/dash_1/members/usr_alice", aliceToken, "", nil}, http.StatusConflict, "RequestError")
	p.nothing(call{"DELETE", "/dashboards/dash_1/members/usr_bob", aliceToken, "", nil})
	p.nothing(call{"DELETE", "/dashboards/dash_1/members/usr_carol", carolToken, "", nil}) // who leaves
	p.want(getAs(bobToken, "/dashboards/dash_1"), http.StatusNotFound, "TargetError")
	p.want(getAs(carolToken, "/dashboards/dash_1"), http.StatusNotFound, "TargetError")
}

// TestLostCapabilities: grants end with what they rest on.
func TestLostCapabilities(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change call
		want   int // status of what bob's grant was for
	}{
		{"narrowed", call{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken, `{"role":"viewer"}`, nil}, http.StatusUnauthorized},
		{"removed", call{"DELETE", "/dashboards/dash_1/members/usr_bob", aliceToken, "", nil}, http.StatusUnauthorized},
		{"dashboard removed", call{"DELETE", "/dashboards/dash_1", aliceToken, "", nil}, http.StatusUnauthorized},
		{"widened", call{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken, `{"role":"editor"}`, nil}, http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t)
			p.register("rl_1", relayToken, "http://127.0.0.1:1")
			p.want(call{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken, `{"role":"editor","capabilities":["view","shell"]}`, nil}, http.StatusOK, "")
			grant := p.grant(bobToken, `{"session_id":"ses_1"}`)
			p.want(signCall(grant, "before", createPTY), http.StatusOK, "")
			p.serve(tt.change)
			if status, body, _ := p.do(signCall(grant, "after", createPTY)); status != tt.want {
				t.Errorf("%d %v, want %d", status, body, tt.want)
			}
		})
	}
}

// TestSessionsOfDashboard lists them in every state, with their commands.
func TestSessionsOfDashboard(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	p.register("rl_1", relayToken, relay.URL)
	p.want(commandCall(aliceToken, `{"target":{"sandboxId":"sb_1"},"op":{"kind":"session.create"}}`), http.StatusOK, "")
	id := string(relay.got()[0].Target.SessionID)
	p.want(commandCall(aliceToken, `{"target":{"sessionId":"`+id+`"},"op":{"kind":"session.delete"}}`), http.StatusOK, "")

	sessions := p.want(getAs(carolToken, "/dashboards/dash_1/sessions"), http.StatusOK, "")["sessions"].([]any)
	states := map[any]any{}
	for _, s := range sessions {
		states[s.(map[string]any)["id"]] = s.(map[string]any)["state"]
	}
	if !reflect.DeepEqual(states, map[any]any{"ses_1": "active", id: "ended"}) {
		t.Errorf("sessions %v", sessions)
	}
	commands := p.want(getAs(carolToken, "/commands?session_id="+id), http.StatusOK, "")["commands"].([]any)
	if len(commands) != 2 || commands[0].(map[string]any)["kind"] != "session.delete" && commands[1].(map[string]any)["kind"] != "session.delete" {
		t.Errorf("commands of a session that is over: %v", commands)
	}
}
