package e2e

import (
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound05Members: nobody is made a member: they are asked, through the same
// origin as everything else, and may do nothing before they agree.
func TestFound05Members(t *testing.T) {
	s := own(t, "--people", "1")
	ctx := within(t)
	alice, p1 := s.Ready.User("alice"), s.Ready.User("p1")
	url := alice.Base + "/dashboards/" + dashboardOf(ctx, t, s) + "/members/" + string(p1.ID)
	_, err := p1.Grant(ctx, s.Ready.SessionID) // who is seeded has agreed
	must(t, err)
	must(t, call(ctx, http.StatusNoContent, nil, http.MethodDelete, url, alice.Token, nil))
	type invitation struct {
		Dashboard string          `json:"dashboard"`
		State     string          `json:"state"`
		Role      string          `json:"role"`
		InvitedBy protocol.UserID `json:"invited_by"`
	}
	open := func() []invitation {
		t.Helper()
		var answer struct {
			Invitations []invitation `json:"invitations"`
		}
		must(t, call(ctx, http.StatusOK, &answer, http.MethodGet, p1.Base+"/invitations", p1.Token, nil))
		return answer.Invitations
	}
	invite := func() string {
		t.Helper()
		var made struct {
			State string `json:"state"`
		}
		must(t, call(ctx, http.StatusOK, &made, http.MethodPut, url, alice.Token, map[string]any{"role": "viewer"}))
		if made.State != "invited" {
			t.Errorf("who was asked is %q", made.State)
		}
		all := open()
		if len(all) != 1 || all[0].State != "invited" || all[0].Role != "viewer" || all[0].InvitedBy != alice.ID {
			t.Fatalf("invitations %+v", all)
		}
		if err := call(ctx, http.StatusNotFound, nil, http.MethodPost, p1.Base+"/grants", p1.Token, map[string]any{"session_id": s.Ready.SessionID}); err != nil {
			t.Errorf("a grant before the answer: %v", err)
		}
		return p1.Base + "/invitations/" + all[0].Dashboard
	}
	must(t, call(ctx, http.StatusNoContent, nil, http.MethodPost, invite()+"/decline", p1.Token, nil))
	if all := open(); len(all) != 0 {
		t.Errorf("declined, and still there: %+v", all)
	}
	at := invite()
	must(t, call(ctx, http.StatusNotFound, nil, http.MethodPost, at+"/accept", s.Ready.User("carol").Token, nil))
	must(t, call(ctx, http.StatusOK, nil, http.MethodPost, at+"/accept", p1.Token, nil))
	_, err = p1.Attach(ctx, s.Ready.SessionID, s.Ready.PTYID, "")
	must(t, err)
}

// TestFound05Limits: what others own doesn't count against one's own limit, and
// an owner's open invitations are bounded.
func TestFound05Limits(t *testing.T) {
	s := own(t, "--people", "2")
	ctx := within(t)
	p1, p2, carol := s.Ready.User("p1"), s.Ready.User("p2"), s.Ready.User("carol")
	var last string
	board := func(user User) string {
		t.Helper()
		var made struct {
			Dashboard struct {
				ID string `json:"id"`
			} `json:"dashboard"`
		}
		must(t, call(ctx, http.StatusCreated, &made, http.MethodPost, user.Base+"/dashboards", user.Token, map[string]any{"name": "ours"}))
		return user.Base + "/dashboards/" + made.Dashboard.ID + "/members/"
	}
	for range 100 {
		last = board(p1)
		must(t, call(ctx, http.StatusOK, nil, http.MethodPut, last+string(p2.ID), p1.Token, map[string]any{"role": "owner"}))
	}
	must(t, call(ctx, http.StatusTooManyRequests, nil, http.MethodPut, last+string(carol.ID), p1.Token, map[string]any{"role": "viewer"}))
	board(p2)
}
