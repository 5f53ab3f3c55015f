// Package boards keeps dashboards: who is a member, who is invited, which sessions
// there are, and how much they were used.
package boards

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxNameBytes  = 128
	maxDashboards = 100 // that one user owns
)

// Boards answers for dashboards.
type Boards struct {
	// Static after construction.
	Store       *store.Boards
	Sessions    Sessions
	Usage       Usage
	Meter       Meter
	Grants      Grants
	Attachments Attachments
	Gate        *access.Gate
	Metrics     *metrics.Metrics
	Clock       clock.Clock
	Logger      *slog.Logger
}

type (
	// Sessions has the sessions of each dashboard.
	Sessions interface {
		SessionsOf(ctx context.Context, dashboard string) ([]store.Session, error)
	}
	// Usage has what was counted in a dashboard.
	Usage interface {
		In(ctx context.Context, dashboard, from, to string) ([]store.Usage, error)
	}
	// A Meter counts into Usage.
	Meter interface{ Flush(ctx context.Context) }
	// Grants are revoked for who may no longer do what they say.
	Grants interface {
		RevokeOf(ctx context.Context, user protocol.UserID, dashboard string) error
		RevokeAll(ctx context.Context, dashboard string) error
	}
	// Attachments end for who may no longer have any.
	Attachments interface {
		DetachAll(ctx context.Context, user protocol.UserID, dashboard string) error
	}
)

type dashboardBody struct {
	ID           string                `json:"id"`
	Name         string                `json:"name"`
	Sandbox      protocol.SandboxID    `json:"sandbox,omitempty"` // absent: none yet
	Role         store.Role            `json:"role"`              // of whoever asks
	Capabilities []protocol.Capability `json:"capabilities"`
}

func newDashboardBody(m access.Membership) dashboardBody {
	return dashboardBody{m.Dashboard.ID, m.Dashboard.Name, m.Dashboard.Sandbox, m.Role, m.Capabilities}
}

type dashboardAnswer struct {
	Dashboard dashboardBody `json:"dashboard"`
}

// getDashboards lists the dashboards of a user.
func (b *Boards) getDashboards(w *web.Writer, r *http.Request) error {
	user, err := b.Gate.User(w, r)
	if err != nil {
		return err
	}
	dashboards, err := b.Store.Dashboards(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Dashboards []dashboardBody `json:"dashboards"`
	}{[]dashboardBody{}}
	for _, d := range dashboards {
		answer.Dashboards = append(answer.Dashboards, newDashboardBody(access.NewMembership(user, d.Dashboard, d.Member)))
	}
	return w.JSON(http.StatusOK, answer)
}

type nameRequest struct {
	Name string `json:"name"`
}

// readName reads a body that names a dashboard.
func readName(r *http.Request) (string, error) {
	var req nameRequest
	if err := web.ReadBody(r, &req); err != nil {
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
func (b *Boards) postDashboard(w *web.Writer, r *http.Request) error {
	user, err := b.Gate.User(w, r)
	if err != nil {
		return err
	}
	name, err := readName(r)
	if err != nil {
		return err
	}
	has, err := b.Store.Dashboards(r.Context(), user.ID)
	if err != nil {
		return err
	}
	has = slices.DeleteFunc(has, func(m store.Membership) bool { return m.Role != store.RoleOwner })
	if len(has) >= maxDashboards {
		return protocol.Errorf(protocol.KindTooMany, "you own %d dashboards already", len(has))
	}
	m := access.NewMembership(user, store.Dashboard{ID: NewID(), Name: name}, store.Member{Role: store.RoleOwner})
	if err := b.Store.AddDashboard(r.Context(), m.Dashboard, user.ID); err != nil {
		return err
	}
	b.Logger.Info("dashboard made", "dashboard", m.Dashboard.ID, "user", user.ID)
	return w.JSON(http.StatusCreated, dashboardAnswer{newDashboardBody(m)})
}

// NewID returns the id of a new dashboard.
func NewID() string { return "dash_" + strings.ToLower(rand.Text()) }

func (b *Boards) getDashboard(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	return w.JSON(http.StatusOK, dashboardAnswer{newDashboardBody(m)})
}

// patchDashboard renames a dashboard.
func (b *Boards) patchDashboard(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Owner(w, r)
	if err != nil {
		return err
	}
	if m.Dashboard.Name, err = readName(r); err != nil {
		return err
	}
	if err := b.Store.RenameDashboard(r.Context(), m.Dashboard.ID, m.Dashboard.Name); err != nil {
		return err
	}
	return w.JSON(http.StatusOK, dashboardAnswer{newDashboardBody(m)})
}

// deleteDashboard removes a dashboard, and revokes what people hold for it.
func (b *Boards) deleteDashboard(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Owner(w, r)
	if err != nil {
		return err
	}
	if err := b.Store.RemoveDashboard(r.Context(), m.Dashboard.ID); err != nil {
		return err
	}
	b.Logger.Info("dashboard removed", "dashboard", m.Dashboard.ID, "user", m.User.ID)
	if err := b.Grants.RevokeAll(r.Context(), m.Dashboard.ID); err != nil { // nobody gets another one
		return err
	}
	return w.None()
}

type sessionBody struct {
	ID        protocol.SessionID `json:"id"`
	State     string             `json:"state"` // pending, active or ended
	CreatedAt *time.Time         `json:"created_at,omitempty"`
}

// getSessions lists all sessions of a dashboard, also those that are over.
func (b *Boards) getSessions(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	sessions, err := b.Sessions.SessionsOf(r.Context(), m.Dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Sessions []sessionBody `json:"sessions"`
	}{[]sessionBody{}}
	for _, session := range sessions {
		answer.Sessions = append(answer.Sessions, sessionBody{session.ID, session.State, web.Time(session.CreatedAt)})
	}
	return w.JSON(http.StatusOK, answer)
}
