package controlplane

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
func (s *Server) getInvitations(w *web.Writer, r *http.Request) error {
	user, err := s.gate.User(w, r)
	if err != nil {
		return err
	}
	open, err := s.store.Boards.InvitationsOf(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Invitations []invitationBody `json:"invitations"`
	}{[]invitationBody{}}
	for _, i := range open {
		answer.Invitations = append(answer.Invitations, invitationBody{
			i.Dashboard, i.DashboardName, i.Role, access.Capabilities(i.Role, i.Capabilities), StateInvited,
			i.InvitedBy, i.InvitedByName, i.InvitedAt,
		})
	}
	return w.JSON(http.StatusOK, answer)
}

// invited returns who asks, and the dashboard in r's path.
func (s *Server) invited(w *web.Writer, r *http.Request) (user store.User, dashboard string, err error) {
	if user, err = s.gate.User(w, r); err != nil {
		return user, "", err
	}
	if dashboard = r.PathValue("dashboard"); !protocol.ValidID(dashboard) {
		return user, "", protocol.Errorf(protocol.KindNotFound, "no such invitation")
	}
	return user, dashboard, nil
}

// acceptInvitation makes a user what they were asked to be.
func (s *Server) acceptInvitation(w *web.Writer, r *http.Request) error {
	user, id, err := s.invited(w, r)
	if err != nil {
		return err
	}
	if _, err := s.store.Boards.AcceptInvitation(r.Context(), user.ID, id); err != nil {
		return err
	}
	dashboard, as, err := s.store.Boards.DashboardFor(r.Context(), user.ID, id)
	if err != nil {
		return err
	}
	s.logger.Info("invitation accepted", "dashboard", id, "user", user.ID, "role", as.Role)
	return w.JSON(http.StatusOK, dashboardAnswer{newDashboardBody(access.NewMembership(user, dashboard, as))})
}

// declineInvitation forgets that a user was asked.
func (s *Server) declineInvitation(w *web.Writer, r *http.Request) error {
	user, id, err := s.invited(w, r)
	if err != nil {
		return err
	}
	if err := s.store.Boards.DeclineInvitation(r.Context(), user.ID, id); err != nil {
		return err
	}
	s.logger.Info("invitation declined", "dashboard", id, "user", user.ID)
	return w.None()
}
