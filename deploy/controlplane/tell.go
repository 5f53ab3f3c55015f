package controlplane

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// TellRevoked dispatches a grant.revoke to a sandbox.
func (s *Server) TellRevoked(ctx context.Context, sandbox protocol.SandboxID, grants []protocol.GrantID) error {
	return s.Tell(ctx, op.Op{Kind: op.KindGrantRevoke, Body: &op.GrantRevoke{Grants: grants}},
		protocol.CommandTarget{SandboxID: sandbox})
}

// Tell signs an operation that is the control plane's own, and has it done. While
// no relay is connected nothing happens.
func (s *Server) Tell(ctx context.Context, what op.Op, target protocol.CommandTarget) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	all, err := s.relays.Registered(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	do := operation{Kind: what.Kind, Op: data, TTLMs: protocol.DefaultCommandTTL.Milliseconds(), Target: target}
	o := order{operation: do, origin: all[0].PublicOrigin}
	if o.requestHash, err = s.hashOf(do); err != nil {
		return err
	}
	cmd, err := s.sign(ctx, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.DefaultCommandTTL)
	defer cancel()
	if cmd.Outcome, err = s.dispatch(ctx, all, cmd); err != nil {
		return err
	}
	return s.finish(context.WithoutCancel(ctx), cmd)
}
