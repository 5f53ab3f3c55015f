// Package notices takes what sandboxes tell of approvals and of turns that coding
// agents have finished, and passes it on to a webhook.
package notices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/webhook"
	"github.com/fairlead/fairlead/protocol"
)

// A Store finds sessions, and keeps the turns in their terminals.
type Store interface {
	FindSession(ctx context.Context, id protocol.SessionID) (store.Session, error)
	AddTurn(ctx context.Context, t store.Turn) (isNew bool, err error)
	Turns(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, limit int) ([]store.Turn, error)
}

// Parts are what notices stand on.
type Parts struct {
	Store     Store
	People    *access.Gate
	Sandboxes *device.Gate
	Webhook   *webhook.Sender // nil: none
	Clock     clock.Clock
	Logger    *slog.Logger
}

// Notices takes what sandboxes tell.
type Notices struct {
	// Static after construction.
	Parts
	progress *progress // of approvals
}

// New returns notices that know of no approval yet.
func New(parts Parts) *Notices { return &Notices{parts, newProgress()} }

// A WebhookConfig says where notices go.
type WebhookConfig struct {
	URL    string // https, or http on loopback; empty: nowhere
	Secret string // signs them
}

// NewWebhook returns nil when cfg names no receiver.
func NewWebhook(cfg WebhookConfig, logger *slog.Logger) (*webhook.Sender, error) {
	if cfg.URL == "" {
		if cfg.Secret != "" {
			return nil, errors.New("approval webhook: there is a secret, and no URL")
		}
		return nil, nil
	}
	sender, err := webhook.New(webhook.Config{URL: cfg.URL, Secret: cfg.Secret, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("approval webhook: %w", err)
	}
	return sender, nil
}
