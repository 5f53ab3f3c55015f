package agent

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// Programs are what runs in terminals, and for conversations.
type programs struct {
	*terminal.Host
	agents *codingagent.Host
}

// UID returns the user of a terminal, or of a session's conversations; false when
// there is none such.
func (p programs) UID(session protocol.SessionID, id protocol.PTYID) (int, bool) {
	if uid, ok := p.agents.UID(session, id); ok {
		return uid, true
	}
	return p.Host.UID(session, id)
}
