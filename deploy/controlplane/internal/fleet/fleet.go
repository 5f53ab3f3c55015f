// Package fleet knows the sandboxes and the relays: it enrols sandboxes, renews
// their certificates, keeps the heads of their audit logs, and registers relays.
package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// DefaultCertificateLife is how long a certificate lasts that a sandbox gets over
// the network.
const DefaultCertificateLife = 24 * time.Hour

type (
	// A Store keeps sandboxes, their certificates, and relays.
	Store interface {
		UseInvitation(ctx context.Context, sandbox protocol.SandboxID, token, thumbprint string, jwk json.RawMessage, now time.Time) error
		AddCertificate(ctx context.Context, c store.Certificate) error
		PutAuditHead(ctx context.Context, head protocol.AuditHead, signature []byte) error
		RegisterRelay(ctx context.Context, r store.Relay, now time.Time) error
	}
	// Spread sends the revocation list to relays.
	Spread interface {
		// Renew has it sent to a relay that may not have it.
		Renew(relay protocol.RelayID)
	}
)

// Parts are what a fleet stands on.
type Parts struct {
	Store           Store
	Gate            *access.Gate // asks relays who they are
	Devices         *device.Gate // asks sandboxes
	Keys            *keyring.Ring
	Relays          *relays.Directory
	Spread          Spread
	Metrics         *metrics.Metrics
	Clock           clock.Clock
	Logger          *slog.Logger
	StateDir        string        // says how sandboxes get here
	CertificateLife time.Duration // at most 0: DefaultCertificateLife
}

// A Fleet answers sandboxes and relays that come and go.
type Fleet struct {
	// Static after construction.
	Parts
	renewals *renewals
}

// New returns a fleet in which no certificate was renewed yet.
func New(parts Parts) *Fleet {
	if parts.CertificateLife <= 0 {
		parts.CertificateLife = DefaultCertificateLife
	}
	return &Fleet{parts, newRenewals(parts.CertificateLife)}
}
