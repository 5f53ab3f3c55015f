// Package tabs keeps which tabs of people's own browsers are shared with a
// session, and has the session's agents use them in the sharer's name.
package tabs

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// maxShare is how long a tab is shared at most.
	maxShare = time.Hour
	// maxReport bounds a report, in bytes: a grant, and so many tabs.
	maxReport = protocol.MaxTokenBytes + store.MaxTabShares*8<<10
)

// Tabs answers for shared tabs.
type Tabs struct {
	// Static after construction.
	Store    *store.Tabs
	Sessions Sessions
	Commands *commands.Commands
	Notify   Notify
	Gate     *access.Gate
	Revoked  *jws.RevocationSet
	Clock    clock.Clock
	Logger   *slog.Logger
}

// Sessions says who may do what in a session.
type Sessions interface {
	Session(ctx context.Context, user protocol.UserID, id protocol.SessionID) (store.Session, error)
}

// Notify has a sandbox told, soon, that the tools of a session have changed.
type Notify interface {
	SessionChanged(sandbox protocol.SandboxID, session protocol.SessionID)
}

// Routes take a relay's credential, with the grant of whom it asks for.
func (t *Tabs) Routes() []web.Route {
	return []web.Route{
		web.Post("/internal/tabs", t.report).For(web.Relays).Limit(maxReport),
		web.Post("/internal/tabs/list", t.list).For(web.Relays).Limit(maxReport),
	}
}

// A reported tab is one as the page of its person says.
type reported struct {
	TabID     int64  `json:"tabId"`
	Title     string `json:"title"`
	URL       string `json:"url"`
	ExpiresAt int64  `json:"expiresAt"` // Unix milliseconds
}

type reportRequest struct {
	Grant       string             `json:"grant"`
	Session     protocol.SessionID `json:"session"`
	BrowserID   string             `json:"browserId"`
	ExtensionID string             `json:"extensionId"`
	Tabs        []reported         `json:"tabs"`
}

// check says what is wrong with a report.
func (r *reportRequest) check() error {
	switch {
	case !op.ValidBrowserID(r.BrowserID):
		return protocol.Errorf(protocol.KindInvalid, "browserId is no installation of the extension")
	case !protocol.ValidID(r.ExtensionID):
		return protocol.Errorf(protocol.KindInvalid, "extensionId is not an id")
	case r.Tabs == nil:
		return protocol.Errorf(protocol.KindInvalid, "tabs is missing: [] ends all")
	case len(r.Tabs) > store.MaxTabShares:
		return protocol.Errorf(protocol.KindTooMany, "one person shares at most %d tabs", store.MaxTabShares)
	}
	for i, tab := range r.Tabs {
		twice := func(other reported) bool { return other.TabID == tab.TabID }
		if tab.TabID < 1 || slices.ContainsFunc(r.Tabs[:i], twice) {
			return protocol.Errorf(protocol.KindInvalid, "tabs: want distinct positive ids")
		}
		if tab.URL != "" && address(tab.URL) == "" { // empty: where no command goes, so nothing is said of it
			return protocol.Errorf(protocol.KindInvalid, "tabs: want URLs of http and https")
		}
	}
	return nil
}

// address returns the origin and path of a page, empty for what is no site's.
func address(raw string) string {
	u, err := url.Parse(op.MaskTabURL(raw))
	if err != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// holder returns the grant that a relay was shown, and its user's session as it
// is now, if both allow what needs a capability.
func (t *Tabs) holder(w *web.Writer, r *http.Request, token string, id protocol.SessionID, needs protocol.Capability) (*jws.Grant, store.Session, error) {
	if !protocol.ValidID(id) {
		return nil, store.Session{}, protocol.Errorf(protocol.KindInvalid, "session is not an id")
	}
	grant, err := t.Commands.Holder(w, r, token)
	if err != nil {
		return nil, store.Session{}, err
	}
	if !grant.Allows(id, "", needs) {
		return nil, store.Session{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", needs)
	}
	session, err := t.Sessions.Session(r.Context(), grant.Subject, id)
	if err != nil {
		return nil, session, err
	}
	return grant, session, access.Require(access.Capabilities(session.Role, session.MemberCapabilities), needs)
}

// report takes what a browser of the grant's user shares with a session now, and
// answers with all that is shared there.
func (t *Tabs) report(w *web.Writer, r *http.Request) error {
	if _, err := t.Gate.Relay(w, r); err != nil {
		return err
	}
	var req reportRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	grant, session, err := t.holder(w, r, req.Grant, req.Session, protocol.CapMCP)
	if err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	var shares []store.TabShare
	now := t.Clock.Now()
	for _, tab := range req.Tabs {
		until := time.UnixMilli(tab.ExpiresAt)
		if latest := now.Add(maxShare); until.After(latest) {
			until = latest
		}
		if !until.After(now) {
			continue // over already
		}
		shares = append(shares, store.TabShare{
			Tab: tab.TabID, Extension: req.ExtensionID, Title: op.CleanTabTitle(tab.Title), URL: address(tab.URL), ExpiresAt: until,
			Grant: grant.ID, GrantedAt: time.Unix(grant.IssuedAt, 0), HeldUntil: grant.Expires(),
		})
	}
	changed, err := t.Store.ShareTabs(r.Context(), session.ID, grant.Subject, req.BrowserID, shares)
	if err != nil {
		return err
	}
	if changed {
		t.Logger.Info("tabs shared", "session", session.ID, "user", grant.Subject, "browser", req.BrowserID, "tabs", len(shares))
		t.Notify.SessionChanged(session.Sandbox, session.ID)
	}
	return t.answer(w, r, session.ID, grant.Subject)
}

// list tells who may see a session what is shared with it.
func (t *Tabs) list(w *web.Writer, r *http.Request) error {
	if _, err := t.Gate.Relay(w, r); err != nil {
		return err
	}
	var req struct {
		Grant   string             `json:"grant"`
		Session protocol.SessionID `json:"session"`
	}
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	grant, session, err := t.holder(w, r, req.Grant, req.Session, protocol.CapView)
	if err != nil {
		return err
	}
	return t.answer(w, r, session.ID, grant.Subject)
}

// answer tells user what is shared with a session, and what ran in their own
// browser.
func (t *Tabs) answer(w *web.Writer, r *http.Request, session protocol.SessionID, user protocol.UserID) error {
	shared, err := t.shared(r.Context(), session)
	if err != nil {
		return err
	}
	ran, err := t.Store.PageCommands(r.Context(), session, maxListed)
	if err != nil {
		return err
	}
	return w.JSON(http.StatusOK, newAnswer(shared, ran, user))
}

// shared returns what is shared with a session now, under grants that hold.
func (t *Tabs) shared(ctx context.Context, session protocol.SessionID) ([]store.TabShare, error) {
	all, err := t.Store.SharedTabs(ctx, session, t.Clock.Now())
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if err := t.Commands.Revoked.Refresh(ctx); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s store.TabShare) bool {
		return t.Revoked.Grant(&jws.Grant{
			ID: s.Grant, Subject: s.User, Dashboard: s.Dashboard, IssuedAt: s.GrantedAt.Unix(), ExpiresAt: s.HeldUntil.Unix(),
		})
	}), nil
}

// Shared reports whether any tab is shared with a session.
func (t *Tabs) Shared(ctx context.Context, session protocol.SessionID) (bool, error) {
	all, err := t.shared(ctx, session)
	return len(all) > 0, err
}
