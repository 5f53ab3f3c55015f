package controlplane

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/vault"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// An IntegrationsConfig says which providers people can connect accounts of.
type IntegrationsConfig struct {
	File         string // YAML, see the README; empty: none
	VaultKeyFile string // keys under which tokens are kept; needed with File
}

// integrations is what the routes of accounts and the gateway share.
type integrations struct {
	// Static after construction.
	vault     *vault.Vault // nil: there is no key file
	providers map[string]*oauth.Provider
	publicURL string // empty: the origin of a relay
	upstream  *http.Transport
	redeeming chan struct{} // one element for each code that is being redeemed

	renewing keyedLocks // by account: one renewal at a time
	limits   *gatewayLimits
	pushes   *pushes // tells sandboxes of changed attachments
}

// codesAtOnce bounds the codes that providers are being asked about.
const codesAtOnce = 32

// errNoVault says why nothing can be kept.
var errNoVault = errors.New("integrations: no vault key file is named, and tokens are only kept encrypted")

// newIntegrations returns one without providers when cfg names none.
func (s *Server) newIntegrations(cfg IntegrationsConfig, publicURL string) (*integrations, error) {
	upstream := http.DefaultTransport.(*http.Transport).Clone()
	upstream.MaxIdleConnsPerHost = 8
	upstream.ResponseHeaderTimeout = upstreamTimeout
	in := &integrations{
		upstream: upstream, redeeming: make(chan struct{}, codesAtOnce), limits: newGatewayLimits(),
		pushes: newPushes(s.closing, s.tellIntegrations, func(at pushTarget, err error) {
			s.logger.Warn("a sandbox was not told of changed integrations",
				"sandbox", at.sandbox, "session", at.session, "pty", at.pty, "error", err)
		}),
	}
	var err error
	if cfg.VaultKeyFile != "" {
		if in.vault, err = vault.Open(cfg.VaultKeyFile); err != nil {
			return nil, err
		}
	}
	if cfg.File == "" {
		return in, nil
	}
	if in.vault == nil {
		return nil, errNoVault
	}
	if publicURL != "" {
		if in.publicURL, err = web.Origin("public URL", publicURL); err != nil {
			return nil, fmt.Errorf("integrations: %w", err)
		}
	}
	if in.providers, err = oauth.Load(cfg.File, s.clock.Now); err != nil {
		return nil, fmt.Errorf("integrations: %w", err)
	}
	return in, nil
}

// close waits for what is under way, which ends with the server.
func (in *integrations) close() {
	if in == nil {
		return
	}
	in.pushes.close()
	in.upstream.CloseIdleConnections()
	for _, p := range in.providers {
		p.Close()
	}
}

// provider returns a provider that is set up: KindNotFound for one that isn't
// known at all, KindUnavailable for one that nobody has set up here.
func (in *integrations) provider(name string) (*oauth.Provider, error) {
	if !slices.Contains(oauth.Providers(), name) {
		return nil, protocol.Errorf(protocol.KindNotFound, "no such provider")
	}
	p := in.providers[name]
	if p == nil {
		return nil, protocol.Errorf(protocol.KindUnavailable, "%s is not set up here: the administrator names it in the file of --integrations", name)
	}
	return p, nil
}

// keyedLocks are locks by name; one that nobody has takes no memory.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]*keyedLock // guarded by mu
}

type keyedLock struct {
	turn  chan struct{} // 1: whoever has put an element in has the lock
	users int           // guarded by keyedLocks.mu
}

// lock waits for the lock of a name until done, and returns what gives it back;
// nil when it was given up.
func (k *keyedLocks) lock(done <-chan struct{}, name string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[string]*keyedLock)
	}
	l := k.held[name]
	if l == nil {
		l = &keyedLock{turn: make(chan struct{}, 1)}
		k.held[name] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, name)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; leave() }
	case <-done:
		leave()
		return nil
	}
}

type accountBody struct {
	ID             string    `json:"id"`
	Provider       string    `json:"provider"`
	Name           string    `json:"name"`
	Scopes         string    `json:"scopes"`
	NeedsReconnect bool      `json:"needs_reconnect"`
	ConnectedAt    time.Time `json:"connected_at"`
}

func newAccountBody(a store.Account) accountBody {
	return accountBody{a.ID, a.Provider, a.Name, a.Scopes, !a.FailedAt.IsZero(), a.CreatedAt.UTC()}
}

type providerBody struct {
	Name  string `json:"name"`
	SetUp bool   `json:"set_up"`
}

// getIntegrations lists a user's accounts, and what can be connected.
func (s *Server) getIntegrations(w *web.Writer, r *http.Request) error {
	user, err := s.gate.User(w, r)
	if err != nil {
		return err
	}
	accounts, err := s.store.Integrations.Accounts(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Accounts  []accountBody  `json:"accounts"`
		Providers []providerBody `json:"providers"`
	}{[]accountBody{}, nil}
	for _, a := range accounts {
		answer.Accounts = append(answer.Accounts, newAccountBody(a))
	}
	for _, name := range oauth.Providers() {
		answer.Providers = append(answer.Providers, providerBody{name, s.integrations.providers[name] != nil})
	}
	return w.JSON(http.StatusOK, answer)
}

// deleteAccount removes an account everywhere, and takes its tokens back at the
// provider if that can be had: what is removed here is removed either way.
func (s *Server) deleteAccount(w *web.Writer, r *http.Request) error {
	user, err := s.gate.User(w, r)
	if err != nil {
		return err
	}
	missing := protocol.Errorf(protocol.KindNotFound, "no such account")
	id := r.PathValue("id")
	if !protocol.ValidID(id) {
		return missing
	}
	account, err := s.store.Integrations.Account(r.Context(), id)
	if err == nil && account.User != user.ID {
		err = missing
	}
	if err != nil {
		return err
	}
	detached, err := s.store.Integrations.RemoveAccount(r.Context(), user.ID, id)
	if err != nil {
		return err
	}
	s.logger.Info("account removed", "account", id, "provider", account.Provider, "user", user.ID, "attachments", len(detached))
	s.pushAttachments(detached)
	if err := s.revokeUpstream(r.Context(), account); err != nil {
		s.logger.Warn("an account's tokens were not taken back at its provider", "account", id, "provider", account.Provider, "error", err)
	}
	return w.None()
}
