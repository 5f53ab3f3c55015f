package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// An InviteConfig says which sandbox to invite, and what to tell it.
type InviteConfig struct {
	StateDir string // the control plane's
	Database string // as Config.Database
	Sandbox  protocol.SandboxID
	Reach
	Dashboard string        // bound to the sandbox; empty: none
	TTL       time.Duration // of the invitation
	Replace   bool          // let it enrol with another device key than the sandbox has
	Out       string        // file to write

	Now func() time.Time // nil: time.Now
}

// DefaultInvitationLife and MaxInvitationLife bound how long an invitation waits
// to be used.
const (
	DefaultInvitationLife = time.Hour
	MaxInvitationLife     = 30 * 24 * time.Hour
)

// Invite writes an invitation, for its owner alone: the sandbox that holds it
// may enrol once. An earlier one of the same sandbox is void.
func Invite(ctx context.Context, cfg InviteConfig) error {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.TTL <= 0 || cfg.TTL > MaxInvitationLife {
		return protocol.Errorf(protocol.KindInvalid, "an invitation lives from 1ns to %s", MaxInvitationLife)
	}
	reached, err := cfg.Reach.read()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(protocol.Invitation{
		SandboxID: cfg.Sandbox, Token: "inv_" + strings.ToLower(rand.Text()),
		ControlPlane: reached.ControlPlane, Relays: reached.Relays, RelayCAPEM: reached.RelayCAPEM,
	}, "", "  ")
	if err != nil {
		return err
	}
	invitation, err := protocol.ParseInvitation(data) // what can't be read mustn't be written
	if err != nil {
		return err
	}
	if err := prepareStateDir(cfg.StateDir); err != nil {
		return err
	}
	st, err := OpenStore(ctx, cfg.StateDir, cfg.Database, store.WithClock(cfg.Now))
	if err != nil {
		return err
	}
	err = st.AddInvitation(ctx, cfg.Sandbox, invitation.Token, cfg.Now().Add(cfg.TTL), cfg.Replace, cfg.Dashboard)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	if err := reached.save(cfg.StateDir); err != nil {
		return err
	}
	return program.ReplaceFile(cfg.Out, append(data, '\n'), privateMode)
}
