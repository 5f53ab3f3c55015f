package feature

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// A Sandbox does what concerns all its features.
type Sandbox struct {
	// SetEgress notes whether the terminals of a new session go through the egress
	// proxy. A session needs nothing else: it exists as soon as the control plane
	// signs for it.
	SetEgress func(session protocol.SessionID, on *bool) error
	// EndSession closes what runs in a session, and forgets it.
	EndSession func(session protocol.SessionID)
	// Revoke makes grants void at once, and for good.
	Revoke func(grants []protocol.GrantID) error
}

// Operations are those on sessions and grants.
func (s Sandbox) Operations() Operations {
	return Operations{
		op.KindSessionCreate: Do(func(_ context.Context, c *jws.Command, body *op.SessionCreate) (protocol.OpResult, error) {
			if body.Egress == nil {
				return Done(c), nil
			}
			return Done(c), s.SetEgress(c.Target.SessionID, body.Egress)
		}),
		op.KindSessionDelete: Do(func(_ context.Context, c *jws.Command, _ *op.Plain) (protocol.OpResult, error) {
			s.EndSession(c.Target.SessionID)
			return Done(c), nil
		}),
		op.KindGrantRevoke: Do(func(_ context.Context, c *jws.Command, body *op.GrantRevoke) (protocol.OpResult, error) {
			return Done(c), s.Revoke(body.Grants)
		}),
	}
}
