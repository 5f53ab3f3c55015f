// Package integrations lets people connect accounts at providers and attach them
// to terminals, whose programs then use them as far as a policy allows.
package integrations

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// A Config says which providers people can connect accounts of.
type Config struct {
	File         string // YAML, see the README; empty: none
	VaultKeyFile string // keys under which tokens are kept; needed with File
	PublicURL    string // where providers send browsers back; empty: the origin of a relay
}

// A Store keeps accounts, where they are attached, and what was asked of them.
type Store interface {
	accountStore
	tokenStore
	attachmentStore
	recordStore
}

// Parts are what integrations stand on.
type Parts struct {
	Store     Store
	Sessions  Sessions
	People    *access.Gate
	Sandboxes *device.Gate
	Relays    Relays
	Contents  *store.Contents // for programs, too
	Commands  Commands
	Tabs      Tabs // of people's own browsers, for programs
	Clock     clock.Clock
	Logger    *slog.Logger
	Calls     *prometheus.CounterVec // requests of sandboxes, by decision
	Secret    []byte                 // of the proofs that tie an authorization to us
}

// Integrations serve accounts, attachments and the gateway of sandboxes.
type Integrations struct {
	// Static after construction.
	providers   providers
	tokens      *tokens
	notifier    *notifier
	accounts    *accounts
	attachments *attachments
	gateway     *gateway
}

// maxRedemptions bounds the codes of providers that are redeemed at a time.
const maxRedemptions = 32

// New returns integrations without providers when cfg names none. What is under
// way ends with ctx.
func New(ctx context.Context, cfg Config, on Parts) (*Integrations, error) {
	vault, err := openVault(cfg.VaultKeyFile, cfg.File != "")
	if err != nil {
		return nil, err
	}
	in := &Integrations{
		tokens: newTokens(vault, on.Store, on.Clock, on.Logger), notifier: newNotifier(ctx, on.Commands, on.Logger),
	}
	publicURL := ""
	if cfg.File != "" {
		if cfg.PublicURL != "" {
			if publicURL, err = web.Origin("public URL", cfg.PublicURL); err != nil {
				return nil, fmt.Errorf("integrations: %w", err)
			}
		}
		if in.providers, err = loadProviders(cfg.File, on.Clock); err != nil {
			return nil, err
		}
	}
	in.accounts = &accounts{
		store: on.Store, people: on.People, relays: on.Relays, providers: in.providers, tokens: in.tokens, notifier: in.notifier,
		clock: on.Clock, logger: on.Logger, publicURL: publicURL, secret: on.Secret, redeeming: make(chan struct{}, maxRedemptions),
	}
	in.attachments = &attachments{
		store: on.Store, sessions: on.Sessions, people: on.People, sandboxes: on.Sandboxes, providers: in.providers,
		notifier: in.notifier, tabs: on.Tabs, logger: on.Logger,
	}
	in.gateway = &gateway{
		store: on.Store, sessions: on.Sessions, people: on.People, sandboxes: on.Sandboxes, contents: on.Contents,
		providers: in.providers, tokens: in.tokens, tabs: on.Tabs, clock: on.Clock, logger: on.Logger, calls: on.Calls,
	}
	return in, nil
}

// Close waits for what is under way, which ends with the context of [New].
func (in *Integrations) Close() {
	if in == nil {
		return
	}
	in.notifier.close()
	in.tokens.close()
	in.providers.close()
}

// DetachAll detaches a user's accounts from a dashboard's terminals: after they
// were removed, or became a viewer.
func (in *Integrations) DetachAll(ctx context.Context, user protocol.UserID, dashboard string) error {
	return in.attachments.detachAll(ctx, user, dashboard)
}

// SessionChanged has a sandbox told that what all terminals of a session may use
// has changed.
func (in *Integrations) SessionChanged(sandbox protocol.SandboxID, session protocol.SessionID) {
	in.notifier.add(terminal{sandbox, session, ""})
}

// Routes take a user's token, or bring its user back from a provider.
func (in *Integrations) Routes() []web.Route {
	return []web.Route{
		web.Get("/integrations", in.accounts.list),
		web.Post("/integrations/{provider}/connect", in.accounts.connect),
		web.Get("/integrations/{provider}/callback", in.accounts.callback),
		web.Delete("/integrations/accounts/{id}", in.accounts.remove),
		web.Get("/dashboards/{id}/integrations", in.attachments.list),
		web.Get("/dashboards/{id}/integrations/audit", in.gateway.listRecords),
		web.Put("/dashboards/{id}/terminals/{pty}/integrations/{provider}", in.attachments.put),
		web.Delete("/dashboards/{id}/terminals/{pty}/integrations/{provider}", in.attachments.remove),
	}
}

// AgentRoutes take a sandbox's signature.
func (in *Integrations) AgentRoutes() []web.Route {
	return []web.Route{
		web.Get("/internal/terminals/{pty}/integrations", in.attachments.listForSandbox),
		web.Post("/internal/gateway/{provider}/execute", coded(in.gateway.execute)).Limit(maxGatewayBody),
	}
}
