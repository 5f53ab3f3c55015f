// Package grants hands out grants for sessions, and revokes them.
package grants

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Grants answers for grants.
type Grants struct {
	// Static after construction.
	Store     *store.Grants
	Sessions  Sessions
	Boards    access.Boards
	Keys      *keyring.Ring // signs
	Spread    Spread
	PerPerson int // live ones that one person may have
	Usage     access.Counter
	Gate      *access.Gate
	Metrics   *metrics.Metrics
	Clock     clock.Clock
	Logger    *slog.Logger
}

// Sessions says who may do what in a session.
type Sessions interface {
	Session(ctx context.Context, user protocol.UserID, id protocol.SessionID) (store.Session, error)
}

// A Spread lets relays and sandboxes know of what was revoked.
type Spread interface{ Kick() }

// Routes returns the routes of grants. They take a user token.
func (s *Grants) Routes() []web.Route {
	return []web.Route{
		web.Post("/grants", s.postGrant),
		web.Delete("/grants/{id}", s.deleteGrant),
	}
}

type grantRequest struct {
	SessionID    protocol.SessionID     `json:"session_id"`
	PTYID        protocol.PTYID         `json:"pty_id"`
	Capabilities *[]protocol.Capability `json:"capabilities"` // absent: all the user has
}

func (g *grantRequest) check() error {
	if !protocol.ValidID(g.SessionID) {
		return protocol.Errorf(protocol.KindInvalid, "session_id is not an id")
	}
	if g.PTYID != "" && !protocol.ValidID(g.PTYID) {
		return protocol.Errorf(protocol.KindInvalid, "pty_id is not an id")
	}
	if g.Capabilities == nil {
		return nil
	}
	if len(*g.Capabilities) == 0 {
		return protocol.Errorf(protocol.KindInvalid, "capabilities is empty")
	}
	for _, c := range *g.Capabilities {
		if !c.Known() {
			return protocol.Errorf(protocol.KindInvalid, "unknown capability %q", string(c))
		}
	}
	return nil
}

// narrow returns those of caps that were asked for; KindForbidden when more was.
func (g *grantRequest) narrow(caps []protocol.Capability) ([]protocol.Capability, error) {
	if g.Capabilities == nil {
		return caps, nil
	}
	for _, c := range *g.Capabilities {
		if !slices.Contains(caps, c) {
			return nil, protocol.Errorf(protocol.KindForbidden, "you don't have the capability %q here", string(c))
		}
	}
	return slices.DeleteFunc(caps, func(c protocol.Capability) bool {
		return !slices.Contains(*g.Capabilities, c)
	}), nil
}

type grantAnswer struct {
	Grant     string    `json:"grant"`
	ExpiresAt time.Time `json:"expires_at"`
}

// postGrant hands a user a grant for one of their sessions.
func (s *Grants) postGrant(w *web.Writer, r *http.Request) error {
	user, err := s.Gate.User(w, r)
	if err != nil {
		return err
	}
	var req grantRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	session, err := s.Sessions.Session(r.Context(), user.ID, req.SessionID)
	if err != nil {
		return err
	}
	caps, err := req.narrow(access.Capabilities(session.Role, session.MemberCapabilities))
	if err != nil {
		return err
	}
	// Grants count whole seconds.
	now := s.Clock.Now().UTC().Truncate(time.Second)
	expires := now.Add(protocol.MaxGrantTTL)
	g := jws.Grant{
		Subject: user.ID, Name: user.Name,
		Dashboard: session.Dashboard, Sandbox: session.Sandbox, Session: session.ID,
		PTYs: []string{jws.AllPTYs}, Caps: caps,
		IssuedAt: now.Unix(), ExpiresAt: expires.Unix(), ID: protocol.NewGrantID(),
	}
	if req.PTYID != "" {
		g.PTYs = []string{string(req.PTYID)}
	}
	token, err := s.Keys.Signer().SignGrant(g)
	if err != nil {
		return err
	}
	err = s.Store.AddGrant(r.Context(), store.Grant{
		ID: g.ID, User: user.ID, Session: session.ID, PTY: req.PTYID,
		Capabilities: access.Join(caps), IssuedAt: now, ExpiresAt: expires,
		Role: session.Role, MemberCapabilities: session.MemberCapabilities, Most: s.PerPerson,
	})
	if full, ok := errors.AsType[*store.FullError](err); ok {
		s.Metrics.Bounds.WithLabelValues(metrics.Grants).Inc()
		w.RetryAfter(full.Until.Sub(s.Clock.Now()))
	}
	if err != nil {
		return err
	}
	s.Usage.Count(session.Dashboard, user.ID, store.UsageGrants)
	s.Metrics.Signed.WithLabelValues(metrics.Grant).Inc()
	s.Logger.Info("grant issued", "grant", g.ID, "user", user.ID, "session", session.ID)
	return w.JSON(http.StatusOK, grantAnswer{token, expires})
}

// RevokeOf revokes what a user may still do in a dashboard by the grants
// they hold: after they were removed or lost a capability.
func (s *Grants) RevokeOf(ctx context.Context, user protocol.UserID, dashboard string) error {
	ids, err := s.Store.RevokeGrantsOf(ctx, user, dashboard, s.Clock.Now())
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		s.Logger.Info("grants revoked", "user", user, "dashboard", dashboard, "grants", len(ids))
		s.Spread.Kick()
	}
	return nil
}

// RevokeAll revokes what everybody may still do in a dashboard.
func (s *Grants) RevokeAll(ctx context.Context, dashboard string) error {
	holders, err := s.Store.GrantHolders(ctx, dashboard, s.Clock.Now())
	if err != nil {
		return err
	}
	for _, user := range holders {
		if err := s.RevokeOf(ctx, user, dashboard); err != nil {
			return err
		}
	}
	return nil
}

// deleteGrant revokes a grant: one's own, or one for a dashboard that one owns.
// Others don't exist for the caller.
func (s *Grants) deleteGrant(w *web.Writer, r *http.Request) error {
	user, err := s.Gate.User(w, r)
	if err != nil {
		return err
	}
	missing := protocol.Errorf(protocol.KindNotFound, "no such grant")
	id := protocol.GrantID(r.PathValue("id"))
	if !protocol.ValidID(id) {
		return missing
	}
	grant, err := s.Store.Grant(r.Context(), id)
	if err != nil {
		return err
	}
	if grant.User != user.ID {
		_, member, err := s.Boards.DashboardFor(r.Context(), user.ID, grant.Dashboard)
		if err != nil && protocol.KindOf(err) != protocol.KindNotFound {
			return err
		}
		if err != nil || member.Role != store.RoleOwner {
			return missing
		}
	}
	if err := s.Store.RevokeGrant(r.Context(), id, s.Clock.Now()); err != nil {
		return err
	}
	s.Logger.Info("grant revoked", "grant", id, "of", grant.User, "by", user.ID)
	s.Spread.Kick()
	return w.None()
}
