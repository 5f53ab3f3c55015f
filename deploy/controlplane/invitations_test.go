package controlplane

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
)

func putMember(token, dashboard, user, body string) call {
	return call{"PUT", "/dashboards/" + dashboard + "/members/" + user, token, body, nil}
}

func answerTo(token, dashboard, answer string) call {
	return call{"POST", "/invitations/" + dashboard + "/" + answer, token, "", nil}
}

// TestFound05Invitations: who is invited is nothing yet, answers once, and is
// what they agreed to be.
func TestFound05Invitations(t *testing.T) {
	p := newPlane(t)
	none := func(who string) {
		t.Helper()
		if open := p.want(getAs(who, "/invitations"), http.StatusOK, "")["invitations"].([]any); len(open) != 0 {
			t.Errorf("invitations %v", open)
		}
	}
	none(daveToken)
	p.want(answerTo(daveToken, "dash_1", "accept"), http.StatusNotFound, "TargetError")
	body := p.want(putMember(aliceToken, "dash_1", "usr_dave", `{"role":"editor","capabilities":["view","chat"]}`), http.StatusOK, "")
	if body["state"] != "invited" || !reflect.DeepEqual(body["capabilities"], []any{"view", "chat"}) {
		t.Errorf("%v", body)
	}
	p.want(getAs(daveToken, "/dashboards/dash_1"), http.StatusNotFound, "TargetError")
	p.want(call{"POST", "/grants", daveToken, `{"session_id":"ses_1"}`, nil}, http.StatusNotFound, "TargetError")
	if all := p.want(getAs(daveToken, "/dashboards"), http.StatusOK, "")["dashboards"].([]any); len(all) != 0 {
		t.Errorf("dashboards %v", all)
	}
	open := p.want(getAs(daveToken, "/invitations"), http.StatusOK, "")["invitations"].([]any)
	want := map[string]any{
		"dashboard": "dash_1", "name": "dash_1", "role": "editor", "capabilities": []any{"view", "chat"}, "state": "invited",
		"invited_by": "usr_alice", "invited_by_name": "Alice", "invited_at": "2026-11-20T12:00:00Z",
	}
	if len(open) != 1 || !reflect.DeepEqual(open[0], want) {
		t.Errorf("%v, want %v", open, want)
	}
	none(bobToken)
	members := p.want(getAs(carolToken, "/dashboards/dash_1/members"), http.StatusOK, "")["members"].([]any)
	if last := members[len(members)-1].(map[string]any); len(members) != 4 || last["user"] != "usr_dave" || last["state"] != "invited" {
		t.Errorf("members %v", members)
	}
	p.want(answerTo(carolToken, "dash_1", "accept"), http.StatusNotFound, "TargetError")
	if d := p.want(answerTo(daveToken, "dash_1", "accept"), http.StatusOK, "")["dashboard"].(map[string]any); d["id"] != "dash_1" || d["role"] != "editor" {
		t.Errorf("%v", d)
	}
	p.grant(daveToken, `{"session_id":"ses_1"}`)
	none(daveToken)
	p.want(answerTo(daveToken, "dash_1", "accept"), http.StatusNotFound, "TargetError")
	if body := p.want(putMember(aliceToken, "dash_1", "usr_dave", `{"role":"viewer"}`), http.StatusOK, ""); body["state"] != "accepted" {
		t.Errorf("a member who is changed: %v", body)
	}
	// To be an owner is asked as well: it counts.
	if body := p.want(putMember(aliceToken, "dash_1", "usr_dave", `{"role":"owner"}`), http.StatusOK, ""); body["state"] != "invited" {
		t.Errorf("a member who is to be an owner: %v", body)
	}
	if d := p.want(getAs(daveToken, "/dashboards/dash_1"), http.StatusOK, "")["dashboard"].(map[string]any); d["role"] != "viewer" {
		t.Errorf("%v", d)
	}
	p.nothing(answerTo(daveToken, "dash_1", "decline"))
	p.want(answerTo(daveToken, "dash_1", "decline"), http.StatusNotFound, "TargetError")
	p.want(answerTo("", "dash_1", "decline"), http.StatusUnauthorized, "AuthError")
}

// TestFound05TakenBack: by an owner, with the owner who asked, with the dashboard.
func TestFound05TakenBack(t *testing.T) {
	p := newPlane(t)
	invite := func(by string) {
		t.Helper()
		p.want(putMember(by, "dash_1", "usr_dave", `{"role":"editor"}`), http.StatusOK, "")
	}
	gone := func(when string) {
		t.Helper()
		if open := p.want(getAs(daveToken, "/invitations"), http.StatusOK, "")["invitations"].([]any); len(open) != 0 {
			t.Errorf("%s: %v", when, open)
		}
		p.want(answerTo(daveToken, "dash_1", "accept"), http.StatusNotFound, "TargetError")
	}
	invite(aliceToken)
	p.nothing(call{"DELETE", "/dashboards/dash_1/members/usr_dave", aliceToken, "", nil})
	gone("taken back")
	p.want(putMember(aliceToken, "dash_1", "usr_bob", `{"role":"owner"}`), http.StatusOK, "")
	p.want(answerTo(bobToken, "dash_1", "accept"), http.StatusOK, "")
	invite(bobToken)
	p.want(putMember(aliceToken, "dash_1", "usr_bob", `{"role":"editor"}`), http.StatusOK, "")
	gone("the owner who asked is none any more")
	invite(aliceToken)
	p.nothing(call{"DELETE", "/dashboards/dash_1", aliceToken, "", nil})
	gone("the dashboard is removed")
}

// TestFound05Limits: only what one owns counts against one's own limit, and an
// inviter has so many open invitations.
func TestFound05Limits(t *testing.T) {
	p := newPlane(t)
	made := func(token string) string {
		t.Helper()
		id, _ := p.want(call{"POST", "/dashboards", token, `{"name":"x"}`, nil}, http.StatusCreated, "")["dashboard"].(map[string]any)["id"].(string)
		return id
	}
	for range 100 {
		id := made(bobToken)
		p.want(putMember(bobToken, id, "usr_dave", `{"role":"owner"}`), http.StatusOK, "")
	}
	p.want(call{"POST", "/dashboards", bobToken, `{"name":"x"}`, nil}, http.StatusTooManyRequests, "LimitError")
	if store.MaxInvitations != 100 {
		t.Fatal("the bounds are others: this test opens as many invitations as there may be")
	}
	status, _, _ := p.do(putMember(bobToken, p.someOf(bobToken), "usr_carol", `{"role":"viewer"}`))
	if status != http.StatusTooManyRequests {
		t.Errorf("the invitation after the last one: %d", status)
	}
	ids := p.want(getAs(daveToken, "/invitations"), http.StatusOK, "")["invitations"].([]any)
	for _, i := range ids[:99] {
		p.want(answerTo(daveToken, i.(map[string]any)["dashboard"].(string), "accept"), http.StatusOK, "")
	}
	made(daveToken) // the 100th of his own
	p.want(call{"POST", "/dashboards", daveToken, `{"name":"x"}`, nil}, http.StatusTooManyRequests, "LimitError")
	for i := range 3 { // what others own costs nothing
		id := made(aliceToken)
		p.want(putMember(aliceToken, id, "usr_dave", `{"role":"editor"}`), http.StatusOK, "")
		p.want(answerTo(daveToken, id, "accept"), http.StatusOK, "")
		if _, as, err := p.server.store.Boards.DashboardFor(t.Context(), "usr_dave", id); err != nil || as.Role != store.RoleEditor {
			t.Error(fmt.Errorf("dashboard %d: %+v, %w", i, as, err))
		}
	}
}

// someOf returns a dashboard of the user with that token.
func (p *plane) someOf(token string) string {
	p.t.Helper()
	all := p.want(getAs(token, "/dashboards"), http.StatusOK, "")["dashboards"].([]any)
	for _, d := range all {
		if d := d.(map[string]any); d["role"] == string(store.RoleOwner) {
			return d["id"].(string)
		}
	}
	p.t.Fatal("there is no dashboard")
	return ""
}
