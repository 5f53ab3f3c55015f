package agent

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/audit"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/uplink"
)

// A base is what an agent stands on before it has terminals: its state directory,
// its standing with the control plane and its tunnels.
type base struct {
	// Static after construction.
	cfg       Config
	log       *slog.Logger
	instance  string        // of this process, random
	secrets   *mask.Secrets // are masked in the log, and elsewhere
	features  *feature.Set  // also what has to be closed
	news      chan struct{} // 1 element: something may be wrong, or right again
	identity  *authority.Identity
	ledger    *ledger.Ledger
	audit     *audit.Log
	tunnels   *uplink.Tunnels
	authority *authority.Authority
}

// newBase reads the state directory of cfg, which was checked.
func newBase(cfg Config) (_ *base, err error) {
	b := &base{
		cfg: cfg, instance: strings.ToLower(rand.Text()), secrets: &mask.Secrets{}, features: &feature.Set{}, news: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.features.Close())
		}
	}()
	b.log = slog.New(b.secrets.Handler(cfg.Logger.Handler()))
	if b.identity, err = authority.Load(cfg.StateDir, cfg.Enrolment); err != nil {
		return nil, err
	}
	if b.ledger, err = ledger.Open(filepath.Join(cfg.StateDir, "ledger"), time.Now); err != nil {
		return nil, err
	}
	b.features.Add(b.ledger)
	enrolment := b.identity.Enrolment
	relays, pinned := enrolment.Relays, false
	if len(cfg.Relays) > 0 {
		relays, pinned = cfg.Relays, true
	}
	b.tunnels = uplink.New(uplink.Options{
		Relays: relays, Pinned: pinned, TLS: b.identity.RelayTLS, Carriers: cfg.carriers(),
		Hello: protocol.Hello{
			SandboxID: enrolment.SandboxID, InstanceID: b.instance, Revision: cfg.Revision, Isolation: string(isolation()),
		},
		Generations: b.ledger, Log: b.log, Patience: cfg.patience,
	})
	b.audit, err = audit.Open(audit.Options{
		Dir: filepath.Join(cfg.StateDir, "audit"), Sandbox: enrolment.SandboxID, Device: b.identity.Device,
		Now: time.Now, Logger: b.log, Changed: b.news,
	})
	if err != nil {
		return nil, err
	}
	b.features.Add(b.audit)
	b.authority, err = authority.Open(authority.Options{
		Identity: b.identity, KeysMaxAge: cfg.KeysMaxAge, Dialer: b.tunnels, Relays: b.tunnels,
		Audit: b.audit, Changed: b.news, Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	b.features.Add(b.authority)
	return b, nil
}
