package controlplane

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxNameBytes  = 128
	maxDashboards = 100 // that one user owns
)

// A membership is a user in one of their dashboards.
type membership struct {
	user      store.User
	dashboard store.Dashboard
	role      store.Role
	caps      []protocol.Capability
}

// member returns who asks for the dashboard in r's path. A dashboard of others
// doesn't exist for them: KindNotFound; without the capability it is
// KindForbidden.
func (s *Server) member(w http.ResponseWriter, r *http.Request, needs protocol.Capability) (membership, error) {
	user, err := authenticate(w, r, realmUser, s.store.People.UserByToken)
	if err != nil {
		return membership{}, err
	}
	id := r.PathValue("id")
	if !protocol.ValidID(id) {
		return membership{}, protocol.Errorf(protocol.KindNotFound, "no such dashboard")
	}
	dashboard, as, err := s.store.Boards.DashboardFor(r.Context(), user.ID, id)
	if err != nil {
		return membership{}, err
	}
	s.usage.count(id, user.ID, store.UsageAPIRequests)
	m := membership{user, dashboard, as.Role, capabilitiesOf(as.Role, as.Capabilities)}
	if !slices.Contains(m.caps, needs) {
		return m, protocol.Errorf(protocol.KindForbidden, "you don't have the capability %q here", string(needs))
	}
	return m, nil
}

// owner is member for what only owners may do.
func (s *Server) owner(w http.ResponseWriter, r *http.Request) (membership, error) {
	m, err := s.member(w, r, protocol.CapView)
	if err == nil && m.role != store.RoleOwner {
		err = protocol.Errorf(protocol.KindForbidden, "only an owner may do this")
	}
	return m, err
}

// writer is member for what viewers may not do.
func (s *Server) writer(w http.ResponseWriter, r *http.Request) (membership, error) {
	m, err := s.member(w, r, protocol.CapView)
	if err == nil && m.role != store.RoleOwner && m.role != store.RoleEditor {
		err = protocol.Errorf(protocol.KindForbidden, "viewers may only read")
	}
	return m, err
}

type dashboardBody struct {
	ID           string                `json:"id"`
	Name         string                `json:"name"`
	Sandbox      protocol.SandboxID    `json:"sandbox,omitempty"` // absent: none yet
	Role         store.Role            `json:"role"`              // of whoever asks
	Capabilities []protocol.Capability `json:"capabilities"`
}

func (m *membership) body() dashboardBody {
	return dashboardBody{m.dashboard.ID, m.dashboard.Name, m.dashboard.Sandbox, m.role, m.caps}
}

type dashboardAnswer struct {
	Dashboard dashboardBody `json:"dashboard"`
	revised
}

// getDashboards lists the dashboards of a user.
func (s *Server) getDashboards(w http.ResponseWriter, r *http.Request) error {
	user, err := s.asUser(w, r)
	if err != nil {
		return err
	}
	dashboards, err := s.store.Boards.Dashboards(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Dashboards []dashboardBody `json:"dashboards"`
		revised
	}{[]dashboardBody{}, s.stamp()}
	for _, d := range dashboards {
		m := membership{user, d.Dashboard, d.Member.Role, capabilitiesOf(d.Member.Role, d.Member.Capabilities)}
		answer.Dashboards = append(answer.Dashboards, m.body())
	}
	return s.write(w, http.StatusOK, answer)
}

type nameRequest struct {
	Name string `json:"name"`
}

// readName reads a body that names a dashboard.
func readName(r *http.Request) (string, error) {
	var req nameRequest
	if err := readBody(r, &req); err != nil {
		return "", err
	}
	return req.Name, checkName(req.Name)
}

// checkName refuses a name that can't be shown on one line.
func checkName(name string) error {
	hidden := func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }
	if strings.TrimSpace(name) != name || name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, hidden) {
		return protocol.Errorf(protocol.KindInvalid, "name: want 1 to %d bytes on one line", maxNameBytes)
	}
	return nil
}

// postDashboard makes a dashboard that belongs to its maker. A sandbox joins it
// with its invitation.
func (s *Server) postDashboard(w http.ResponseWriter, r *http.Request) error {
	user, err := s.asUser(w, r)
	if err != nil {
		return err
	}
	name, err := readName(r)
	if err != nil {
		return err
	}
	has, err := s.store.Boards.Dashboards(r.Context(), user.ID)
	if err != nil {
		return err
	}
	has = slices.DeleteFunc(has, func(m store.Membership) bool { return m.Role != store.RoleOwner })
	if len(has) >= maxDashboards {
		return protocol.Errorf(protocol.KindTooMany, "you own %d dashboards already", len(has))
	}
	m := membership{
		user: user, dashboard: store.Dashboard{ID: newDashboardID(), Name: name},
		role: store.RoleOwner, caps: capabilitiesOf(store.RoleOwner, ""),
	}
	if err := s.store.Boards.AddDashboard(r.Context(), m.dashboard, user.ID); err != nil {
		return err
	}
	s.logger.Info("dashboard made", "dashboard", m.dashboard.ID, "user", user.ID)
	return s.write(w, http.StatusCreated, dashboardAnswer{m.body(), s.stamp()})
}

func newDashboardID() string { return "dash_" + strings.ToLower(rand.Text()) }

func (s *Server) getDashboard(w http.ResponseWriter, r *http.Request) error {
	m, err := s.member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	return s.write(w, http.StatusOK, dashboardAnswer{m.body(), s.stamp()})
}

// patchDashboard renames a dashboard.
func (s *Server) patchDashboard(w http.ResponseWriter, r *http.Request) error {
	m, err := s.owner(w, r)
	if err != nil {
		return err
	}
	if m.dashboard.Name, err = readName(r); err != nil {
		return err
	}
	if err := s.store.Boards.RenameDashboard(r.Context(), m.dashboard.ID, m.dashboard.Name); err != nil {
		return err
	}
	return s.write(w, http.StatusOK, dashboardAnswer{m.body(), s.stamp()})
}

// deleteDashboard removes a dashboard, and revokes what people hold for it.
func (s *Server) deleteDashboard(w http.ResponseWriter, r *http.Request) error {
	m, err := s.owner(w, r)
	if err != nil {
		return err
	}
	if err := s.store.Boards.RemoveDashboard(r.Context(), m.dashboard.ID); err != nil {
		return err
	}
	s.logger.Info("dashboard removed", "dashboard", m.dashboard.ID, "user", m.user.ID)
	holders, err := s.store.Grants.GrantHolders(r.Context(), m.dashboard.ID, s.now()) // nobody gets another one
	if err != nil {
		return err
	}
	for _, user := range holders {
		if err := s.revokeGrantsOf(r.Context(), user, m.dashboard.ID); err != nil {
			return err
		}
	}
	return none(w)
}

type sessionBody struct {
	ID        protocol.SessionID `json:"id"`
	State     string             `json:"state"` // pending, active or ended
	CreatedAt *time.Time         `json:"created_at,omitempty"`
}

// getSessions lists all sessions of a dashboard, also those that are over.
func (s *Server) getSessions(w http.ResponseWriter, r *http.Request) error {
	m, err := s.member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	sessions, err := s.store.Sessions.SessionsOf(r.Context(), m.dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Sessions []sessionBody `json:"sessions"`
		revised
	}{[]sessionBody{}, s.stamp()}
	for _, session := range sessions {
		answer.Sessions = append(answer.Sessions, sessionBody{session.ID, session.State, present(session.CreatedAt)})
	}
	return s.write(w, http.StatusOK, answer)
}
