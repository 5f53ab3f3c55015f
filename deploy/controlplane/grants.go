package controlplane

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

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
func (s *Server) postGrant(w *web.Writer, r *http.Request) error {
	user, err := s.gate.User(w, r)
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
	session, err := s.store.Sessions.Session(r.Context(), user.ID, req.SessionID)
	if err != nil {
		return err
	}
	caps, err := req.narrow(access.Capabilities(session.Role, session.MemberCapabilities))
	if err != nil {
		return err
	}
	// Grants count whole seconds.
	now := s.clock.Now().UTC().Truncate(time.Second)
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
	token, err := s.keys.Signer().SignGrant(g)
	if err != nil {
		return err
	}
	err = s.store.Grants.AddGrant(r.Context(), store.Grant{
		ID: g.ID, User: user.ID, Session: session.ID, PTY: req.PTYID,
		Capabilities: access.Join(caps), IssuedAt: now, ExpiresAt: expires,
		Role: session.Role, MemberCapabilities: session.MemberCapabilities, Most: s.grantsPerPerson,
	})
	if full, ok := errors.AsType[*store.FullError](err); ok {
		s.metrics.Bounds.WithLabelValues(metrics.Grants).Inc()
		w.RetryAfter(full.Until.Sub(s.clock.Now()))
	}
	if err != nil {
		return err
	}
	s.usage.Count(session.Dashboard, user.ID, store.UsageGrants)
	s.metrics.Signed.WithLabelValues(metrics.Grant).Inc()
	s.logger.Info("grant issued", "grant", g.ID, "user", user.ID, "session", session.ID)
	return w.JSON(http.StatusOK, grantAnswer{token, expires})
}
