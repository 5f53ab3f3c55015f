package agent

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/environment"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/integration"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// operations are all that commands can have done here.
func (a *Agent) operations() feature.Operations {
	sandbox := feature.Sandbox{SetEgress: a.local.rules.SetEnabled, EndSession: a.endSession, Revoke: a.authority.Trust.Revocations.Revoke}
	decisions := approval.Decisions{
		Approvals: a.local.approvals, Egress: a.local.rules, Broker: a.local.broker, Ruled: a.local.ruled,
	}
	return feature.Operations{}.Add(
		sandbox.Operations(),
		terminal.Operations(a.host),
		environment.Operations(a.local, a.local.openEnv),
		decisions.Operations(),
		a.local.workshop.browser.Operations(),
		integration.Operations(a.local.workshop.changed),
	)
}

func (a *Agent) endSession(session protocol.SessionID) {
	a.host.CloseSession(session)
	a.local.sessionEnded(session)
}
