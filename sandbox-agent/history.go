package agent

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/masking"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/environment"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// bringing starts programs of conversations, each once it has the transcript that
// it goes on with.
type bringing struct {
	chat.Programs
	history *history.History // set before anything starts
}

// Start implements [chat.Programs].
func (b *bringing) Start(ctx context.Context, p chat.Program) (chat.Process, error) {
	if err := b.history.Bring(p.Session, p.Conversation); err != nil {
		return nil, err
	}
	return b.Programs.Start(ctx, p)
}

// opened learns which sessions of providers are open in terminals. Both are set
// before anything starts.
type opened struct {
	*chat.Hosting
	chats *chat.Chats
}

// AgentSession implements [mcp.Sessions]: a process that waits for another message
// doesn't know what is said in a terminal, and ends.
func (o *opened) AgentSession(session protocol.SessionID, pty protocol.PTYID, agent, native string) {
	o.Hosting.AgentSession(session, pty, agent, native)
	if name := process.KnownAgent(agent); name != "" && pty != "" {
		o.chats.Outside(session, name, native)
	}
}

// chatHomes are the homes of conversations.
type chatHomes struct{ agents *codingagent.Host }

// ChatHome implements [history.ChatHomes].
func (c chatHomes) ChatHome(session protocol.SessionID) string { return c.agents.Home(session) }

// masker hides secrets in what history shows.
type masker struct{ secrets *mask.Secrets }

// Hold implements [history.ChatHomes].
func (c chatHomes) Hold(session protocol.SessionID) error { return c.agents.Hold(session) }

// Row implements [history.Masker].
func (m masker) Row(row rows.Row) rows.Row { return masking.Mask(m.secrets.Set(), row) }

// Text implements [history.Masker].
func (m masker) Text(text string) string { return string(m.secrets.Mask([]byte(text))) }

// variableNames are those that a session's programs find.
type variableNames struct{ variables *environment.Store }

// Names implements [history.Variables].
func (v variableNames) Names(session protocol.SessionID) (names []string) {
	for _, of := range v.variables.Names(session).Variables {
		if of.PTYID == "" {
			names = append(names, of.Name)
		}
	}
	return names
}
