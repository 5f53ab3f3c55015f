package integrations

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/policy"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// An attachmentStore keeps which account is attached to which terminal.
type attachmentStore interface {
	Account(ctx context.Context, id string) (store.Account, error)
	AttachmentsIn(ctx context.Context, dashboard string) ([]store.Attachment, error)
	Attachments(ctx context.Context, session protocol.SessionID, pty protocol.PTYID) ([]store.Attachment, error)
	Attach(ctx context.Context, t store.Attachment) (attached store.Attachment, changed bool, err error)
	Detach(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, provider string) error
	DetachAll(ctx context.Context, user protocol.UserID, dashboard string) ([]store.Attachment, error)
}

// Sessions finds sessions, as a member sees them or as nobody does.
type Sessions interface {
	device.Sessions
	Session(ctx context.Context, user protocol.UserID, id protocol.SessionID) (store.Session, error)
}

// attachments serves the routes about accounts that are attached to terminals.
type attachments struct {
	// Static after construction.
	store     attachmentStore
	sessions  Sessions
	people    *access.Gate
	sandboxes *device.Gate
	providers providers
	notifier  *notifier
	tabs      Tabs
	logger    *slog.Logger
}

// An AttachmentBody is an attachment as the members of its dashboard see it.
type AttachmentBody struct {
	Session        protocol.SessionID `json:"session_id"`
	PTY            protocol.PTYID     `json:"pty_id"`
	Provider       string             `json:"provider"`
	Account        string             `json:"account_id"`
	AccountName    string             `json:"account_name"`
	AccountUser    protocol.UserID    `json:"account_user"`
	NeedsReconnect bool               `json:"needs_reconnect"`
	PolicyID       string             `json:"policy_id"`
	PolicyVersion  int64              `json:"policy_version"`
	Policy         json.RawMessage    `json:"policy"`
	AttachedBy     protocol.UserID    `json:"attached_by"`
	AttachedAt     time.Time          `json:"attached_at"`
}

func newAttachmentBody(t store.Attachment) AttachmentBody {
	return AttachmentBody{
		t.Session, t.PTY, t.Provider, t.Account, t.AccountName, t.AccountUser, !t.AccountFailed.IsZero(),
		t.PolicyID, t.PolicyVersion, t.Policy, t.AttachedBy, t.AttachedAt.UTC(),
	}
}

// list lists what is attached to the terminals of a dashboard's
// sessions, or with ?session_id= of one.
func (s *attachments) list(w *web.Writer, r *http.Request) error {
	m, err := s.people.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	session := protocol.SessionID(r.URL.Query().Get("session_id"))
	attached, err := s.store.AttachmentsIn(r.Context(), m.Dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Attachments []AttachmentBody `json:"attachments"`
	}{[]AttachmentBody{}}
	for _, t := range attached {
		if session == "" || t.Session == session {
			answer.Attachments = append(answer.Attachments, newAttachmentBody(t))
		}
	}
	return w.JSON(http.StatusOK, answer)
}

// An attachTarget is the terminal and the provider in a route's path.
type attachTarget struct {
	access.Membership
	session  store.Session
	pty      protocol.PTYID
	provider string
}

// target returns what r is about, if its user may change it.
func (s *attachments) target(r *http.Request, m access.Membership, id protocol.SessionID) (attachTarget, error) {
	at := attachTarget{Membership: m, pty: protocol.PTYID(r.PathValue("pty")), provider: r.PathValue("provider")}
	if _, known := actionsOf(at.provider); !known {
		return at, protocol.Errorf(protocol.KindNotFound, "no such provider")
	}
	if !protocol.ValidID(at.pty) {
		return at, protocol.Errorf(protocol.KindNotFound, "no such terminal")
	}
	if !protocol.ValidID(id) {
		return at, protocol.Errorf(protocol.KindInvalid, "session_id is missing or not an id: a terminal's is only unique within its session")
	}
	var err error
	at.session, err = s.sessions.Session(r.Context(), m.User.ID, id)
	if err == nil && at.session.Dashboard != m.Dashboard.ID {
		err = protocol.Errorf(protocol.KindNotFound, "no such session in this dashboard")
	}
	return at, err
}

// put attaches one of the caller's own accounts to a terminal, with a
// policy; without one, the account is for reading only.
func (s *attachments) put(w *web.Writer, r *http.Request) error {
	m, err := s.people.Editor(w, r)
	if err != nil {
		return err
	}
	var req struct {
		Session protocol.SessionID `json:"session_id"`
		Account string             `json:"account_id"`
		Policy  json.RawMessage    `json:"policy"`
	}
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	at, err := s.target(r, m, req.Session)
	if err != nil {
		return err
	}
	if _, err := s.providers.find(at.provider); err != nil {
		return err
	}
	if err := s.ownAccount(r.Context(), m.User.ID, at.provider, req.Account); err != nil {
		return err
	}
	rules, err := canonicalPolicy(at.provider, req.Policy)
	if err != nil {
		return err
	}
	t, changed, err := s.store.Attach(r.Context(), store.Attachment{
		Session: req.Session, PTY: at.pty, Provider: at.provider, Account: req.Account, Policy: rules, AttachedBy: m.User.ID,
	})
	if err != nil {
		return err
	}
	if changed {
		s.logger.Info("account attached", "account", t.Account, "provider", t.Provider, "session", t.Session, "pty", t.PTY,
			"policy", t.PolicyID, "version", t.PolicyVersion, "user", m.User.ID)
		s.notifier.changed([]store.Attachment{t})
	}
	return w.JSON(http.StatusOK, struct {
		Attachment AttachmentBody `json:"attachment"`
	}{newAttachmentBody(t)})
}

// ownAccount fails unless the user has the account, at that provider.
func (s *attachments) ownAccount(ctx context.Context, user protocol.UserID, provider, id string) error {
	missing := protocol.Errorf(protocol.KindInvalid, "account_id: want one of your own accounts of %s", provider)
	if !protocol.ValidID(id) {
		return missing
	}
	account, err := s.store.Account(ctx, id)
	if err != nil && protocol.KindOf(err) == protocol.KindNotFound {
		return missing
	}
	if err == nil && (account.User != user || account.Provider != provider) {
		err = missing
	}
	return err
}

// canonicalPolicy returns a policy as it is kept: what was checked, encoded anew.
func canonicalPolicy(provider string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return policy.Default().JSON()
	}
	actions, _ := actionsOf(provider)
	p, err := policy.Parse(provider, actions, raw)
	if err != nil {
		return nil, err
	}
	return p.JSON()
}

// remove detaches an account, whoever's it is: it only takes away.
func (s *attachments) remove(w *web.Writer, r *http.Request) error {
	m, err := s.people.Editor(w, r)
	if err != nil {
		return err
	}
	at, err := s.target(r, m, protocol.SessionID(r.URL.Query().Get("session_id")))
	if err != nil {
		return err
	}
	if err := s.store.Detach(r.Context(), at.session.ID, at.pty, at.provider); err != nil {
		return err
	}
	s.logger.Info("account detached", "provider", at.provider, "session", at.session.ID, "pty", at.pty, "user", m.User.ID)
	s.notifier.add(terminal{at.session.Sandbox, at.session.ID, at.pty})
	return w.None()
}

// detachAll detaches a user's accounts from a dashboard's terminals: after they
// were removed, or became a viewer.
func (s *attachments) detachAll(ctx context.Context, user protocol.UserID, dashboard string) error {
	detached, err := s.store.DetachAll(ctx, user, dashboard)
	if err != nil {
		return err
	}
	s.notifier.changed(detached)
	return nil
}

// listForSandbox tells a sandbox what is attached to a terminal.
func (s *attachments) listForSandbox(w *web.Writer, r *http.Request) error {
	sandbox, _, err := s.sandboxes.Request(r)
	if err != nil {
		return err
	}
	session, err := device.SessionOf(r.Context(), s.sessions, sandbox, protocol.SessionID(r.URL.Query().Get("session_id")))
	if err != nil {
		return err
	}
	pty := protocol.PTYID(r.PathValue("pty"))
	if !protocol.ValidID(pty) {
		return protocol.Errorf(protocol.KindInvalid, "the terminal's id is not an id")
	}
	attached, err := s.store.Attachments(r.Context(), session.ID, pty)
	if err != nil {
		return err
	}
	answer := protocol.IntegrationList{Integrations: []protocol.Integration{}}
	for _, t := range attached {
		if s.providers[t.Provider] == nil {
			continue // set up no more
		}
		answer.Integrations = append(answer.Integrations, protocol.Integration{
			Provider: t.Provider, ActivePolicyID: t.PolicyID, AccountEmail: t.AccountName,
		})
	}
	shared, err := s.tabs.Shared(r.Context(), session.ID)
	if err != nil {
		return err
	}
	if shared {
		answer.Integrations = append(answer.Integrations, protocol.Integration{Provider: tabsProvider})
	}
	return w.Document(http.StatusOK, answer)
}
