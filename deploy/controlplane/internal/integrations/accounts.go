package integrations

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// An accountStore keeps the accounts that people have connected, and who is on
// the way to connect one.
type accountStore interface {
	Accounts(ctx context.Context, user protocol.UserID) ([]store.Account, error)
	Account(ctx context.Context, id string) (store.Account, error)
	FindAccount(ctx context.Context, user protocol.UserID, provider, name string) (store.Account, error)
	PutAccount(ctx context.Context, a store.Account) (store.Account, error)
	RemoveAccount(ctx context.Context, user protocol.UserID, id string) ([]store.Attachment, error)
	AddConnect(ctx context.Context, c store.Connect) error
	TakeConnect(ctx context.Context, state, browser string) (store.Connect, error)
}

// Relays are where browsers find the control plane.
type Relays interface {
	Registered(ctx context.Context) ([]store.Relay, error)
}

// accounts serves the routes about a person's own accounts.
type accounts struct {
	// Static after construction.
	store     accountStore
	people    *access.Gate
	relays    Relays
	providers providers
	tokens    *tokens
	notifier  *notifier
	clock     clock.Clock
	logger    *slog.Logger
	publicURL string        // empty: the origin of a relay
	secret    []byte        // of the proofs that tie an authorization to us
	redeeming chan struct{} // one element for each code that is being redeemed
}

// An AccountBody is an account as its owner sees it.
type AccountBody struct {
	ID             string    `json:"id"`
	Provider       string    `json:"provider"`
	Name           string    `json:"name"`
	Scopes         string    `json:"scopes"`
	NeedsReconnect bool      `json:"needs_reconnect"`
	ConnectedAt    time.Time `json:"connected_at"`
}

func newAccountBody(a store.Account) AccountBody {
	return AccountBody{a.ID, a.Provider, a.Name, a.Scopes, !a.FailedAt.IsZero(), a.CreatedAt.UTC()}
}

type providerBody struct {
	Name  string `json:"name"`
	SetUp bool   `json:"set_up"`
}

// list lists a user's accounts, and what can be connected.
func (s *accounts) list(w *web.Writer, r *http.Request) error {
	user, err := s.people.User(w, r)
	if err != nil {
		return err
	}
	accounts, err := s.store.Accounts(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Accounts  []AccountBody  `json:"accounts"`
		Providers []providerBody `json:"providers"`
	}{[]AccountBody{}, nil}
	for _, a := range accounts {
		answer.Accounts = append(answer.Accounts, newAccountBody(a))
	}
	for _, name := range oauth.Providers() {
		answer.Providers = append(answer.Providers, providerBody{name, s.providers[name] != nil})
	}
	return w.JSON(http.StatusOK, answer)
}

// remove removes an account everywhere, and takes its tokens back at the
// provider if that can be had: what is removed here is removed either way.
func (s *accounts) remove(w *web.Writer, r *http.Request) error {
	user, err := s.people.User(w, r)
	if err != nil {
		return err
	}
	missing := protocol.Errorf(protocol.KindNotFound, "no such account")
	id := r.PathValue("id")
	if !protocol.ValidID(id) {
		return missing
	}
	account, err := s.store.Account(r.Context(), id)
	if err == nil && account.User != user.ID {
		err = missing
	}
	if err != nil {
		return err
	}
	detached, err := s.store.RemoveAccount(r.Context(), user.ID, id)
	if err != nil {
		return err
	}
	s.logger.Info("account removed", "account", id, "provider", account.Provider, "user", user.ID, "attachments", len(detached))
	s.notifier.changed(detached)
	if err := s.tokens.revoke(r.Context(), s.providers[account.Provider], account); err != nil {
		s.logger.Warn("an account's tokens were not taken back at its provider", "account", id, "provider", account.Provider, "error", err)
	}
	return w.None()
}
