package boards

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

type invitationBody struct {
	Dashboard     string                `json:"dashboard"`
	Name          string                `json:"name"` // of the dashboard
	Role          store.Role            `json:"role"`
	Capabilities  []protocol.Capability `json:"capabilities"`
	State         string                `json:"state"`
	InvitedBy     protocol.UserID       `json:"invited_by"`
	InvitedByName string                `json:"invited_by_name"`
	InvitedAt     time.Time             `json:"invited_at"`
}

// getInvitations lists the dashboards that a user was asked to join, and hasn't
// answered.
func (b *Boards) getInvitations(w *web.Writer, r *http.Request) error {
	user, err := b.Gate.User(w, r)
	if err != nil {
		return err
	}
	open, err := b.Store.InvitationsOf(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Invitations []invitationBody `json:"invitations"`
	}{[]invitationBody{}}
	for _, i := range open {
		answer.Invitations = append(answer.Invitations, invitationBody{
			i.Dashboard, i.DashboardName, i.Role, access.Capabilities(i.Role, i.Capabilities), store.MemberInvited,
			i.InvitedBy, i.InvitedByName, i.InvitedAt,
		})
	}
	return w.JSON(http.StatusOK, answer)
}

// invited returns who asks, and the dashboard in r's path.
func (b *Boards) invited(w *web.Writer, r *http.Request) (user store.User, dashboard string, err error) {
	if user, err = b.Gate.User(w, r); err != nil {
		return user, "", err
	}
	if dashboard = r.PathValue("dashboard"); !protocol.ValidID(dashboard) {
		return user, "", protocol.Errorf(protocol.KindNotFound, "no such invitation")
	}
	return user, dashboard, nil
}

// acceptInvitation makes a user what they were asked to be.
func (b *Boards) acceptInvitation(w *web.Writer, r *http.Request) error {
	user, id, err := b.invited(w, r)
	if err != nil {
		return err
	}
	if _, err := b.Store.AcceptInvitation(r.Context(), user.ID, id); err != nil {
		return err
	}
	dashboard, as, err := b.Store.DashboardFor(r.Context(), user.ID, id)
	if err != nil {
		return err
	}
	b.Logger.Info("invitation accepted", "dashboard", id, "user", user.ID, "role", as.Role)
	return w.JSON(http.StatusOK, dashboardAnswer{newDashboardBody(access.NewMembership(user, dashboard, as))})
}

// declineInvitation forgets that a user was asked.
func (b *Boards) declineInvitation(w *web.Writer, r *http.Request) error {
	user, id, err := b.invited(w, r)
	if err != nil {
		return err
	}
	if err := b.Store.DeclineInvitation(r.Context(), user.ID, id); err != nil {
		return err
	}
	b.Logger.Info("invitation declined", "dashboard", id, "user", user.ID)
	return w.None()
}
