package integration

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// Operations are those by which the control plane reports changes of accounts.
// changed is called when a terminal's attachments change, or any in the session
// if pty is "". It must not wait: the attachments are asked for afterwards.
func Operations(changed func(session protocol.SessionID, pty protocol.PTYID)) feature.Operations {
	return feature.Operations{
		op.KindIntegrationsChanged: feature.Do(func(_ context.Context, c *jws.Command, _ *op.Plain) (protocol.OpResult, error) {
			changed(c.Target.SessionID, c.Target.PTYID)
			return feature.Done(c), nil
		}),
	}
}
