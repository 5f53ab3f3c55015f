package feature

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// A Revoker makes grants void at once, and for good.
type Revoker interface {
	Revoke(grants []protocol.GrantID) error
}

// A Sandbox carries out what concerns all features.
type Sandbox struct {
	Sessions SessionEnder // all features
	Grants   Revoker
	Log      *slog.Logger
}

// Operations are those on whole sessions and on grants.
func (s Sandbox) Operations() Operations {
	return Operations{
		op.KindSessionDelete: Do(func(_ context.Context, c *jws.Command, _ *op.Plain) (protocol.OpResult, error) {
			session := c.Target.SessionID
			if err := s.Sessions.SessionEnded(session); err != nil {
				s.Log.Warn("an ended session was not wholly forgotten", "session", session, "err", err)
			}
			return Done(c), nil
		}),
		op.KindGrantRevoke: Do(func(_ context.Context, c *jws.Command, body *op.GrantRevoke) (protocol.OpResult, error) {
			return Done(c), s.Grants.Revoke(body.Grants)
		}),
	}
}
