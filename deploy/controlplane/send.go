package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/signing"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// A SendConfig says what an administrator wants done, in the name of a user.
type SendConfig struct {
	StateDir string // of the control plane, which may be running
	Database string // as in [Config]

	User   protocol.UserID // may do no more than they may
	Target protocol.CommandTarget
	Op     json.RawMessage // an object with "kind"
	TTL    time.Duration   // zero: the default
	Key    string          // idempotency key; empty: none

	Logger *slog.Logger
}

// Send signs a command, dispatches it through the registered relays, and
// returns it with its outcome. An error means that it was never sent.
func Send(ctx context.Context, cfg SendConfig) (cmd store.Command, err error) {
	if _, err := ListKeys(cfg.StateDir, time.Now()); err != nil { // don't make a first key
		return cmd, err
	}
	s := &Server{logger: cfg.Logger}
	s.closing, s.close = context.WithCancel(ctx)
	defer s.close()
	defer func() { err = errors.Join(err, s.closeResources()) }()
	if err := s.openState(ctx, Config{StateDir: cfg.StateDir, Database: cfg.Database, Logger: cfg.Logger}); err != nil {
		return cmd, err
	}
	if _, err := s.store.People.User(ctx, cfg.User); err != nil {
		return cmd, err
	}
	req := commands.Request{Op: cfg.Op, Target: signing.Target{
		SandboxID: cfg.Target.SandboxID, SessionID: cfg.Target.SessionID, PTYID: cfg.Target.PTYID,
		ExtensionID: cfg.Target.ExtensionID, TabID: cfg.Target.TabID, BrowserID: cfg.Target.BrowserID,
	}}
	if cfg.TTL != 0 {
		ms := cfg.TTL.Milliseconds()
		req.TTLMs = &ms
	}
	cmd, err = s.commands.Send(ctx, cfg.User, req, cfg.Key)
	s.usage.Flush(context.WithoutCancel(ctx))
	return cmd, err
}
