package agent

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// continuing does what is wanted done with terminals, of which one may go on with
// a conversation.
type continuing struct {
	*terminal.Host
	agents  *codingagent.Host
	chats   *chat.Chats
	history *history.History
}

var _ terminal.Operator = continuing{}

// Create implements [terminal.Operator]. The coding agent of a conversation runs in
// the terminal as it does without: as the same user and in the same home, where its
// transcript is. Whoever may write in the conversation and approve what is asked
// could have the coding agent do all that can be done so. Programs
// like to say at their end how to resume what they call the session: that is masked.
func (c continuing) Create(ctx context.Context, session protocol.SessionID, id protocol.PTYID, create op.PTYCreate) (protocol.PTYInfo, error) {
	if create.Shell != nil {
		if err := c.makeWay(session, id); err != nil {
			return protocol.PTYInfo{}, err
		}
		var err error
		if create, err = c.resumed(session, create); err != nil {
			return protocol.PTYInfo{}, err
		}
	}
	if create.Conversation == "" {
		return c.Host.Create(ctx, session, id, create)
	}
	if id == "" {
		id = protocol.NewPTYID()
	}
	taken, err := c.chats.Continue(ctx, session, create.Conversation, create.CreatorID, id)
	if err != nil {
		return protocol.PTYInfo{}, err
	}
	lent, err := c.lend(ctx, session, create.Conversation, taken)
	if err != nil {
		taken.Back()
		return protocol.PTYInfo{}, err
	}
	lent.Owner, lent.Hidden = &handover{lent.Owner, taken}, []string{taken.Native}
	return c.CreateLent(ctx, session, id, create, lent)
}

// makeWay forgets a shell that has ended, so that another may have its id, once
// somebody has seen its end: nobody loses that, or what stands before it. Until then
// there is KindConflict.
func (c continuing) makeWay(session protocol.SessionID, id protocol.PTYID) error {
	before, err := c.Get(session, id)
	switch {
	case err != nil:
		return nil
	case !before.EndSeen():
		return protocol.Errorf(protocol.KindConflict, "terminal %s exists", id)
	}
	if err := c.Close(session, id); protocol.KindOf(err) != protocol.KindNotFound {
		return err
	}
	return nil
}

// resumed names the conversation that a shell resumes, if it is one: then the shell
// goes on in it. One in which nothing was said has nothing to resume. Any other id
// is the coding agent's to know.
func (c continuing) resumed(session protocol.SessionID, create op.PTYCreate) (op.PTYCreate, error) {
	if !create.Shell.Resumes() {
		return create, nil
	}
	conversation := protocol.ConversationID(create.Shell.SessionID)
	info, err := c.chats.Get(session, conversation)
	if err != nil {
		return create, nil
	}
	if info.Native == "" {
		anew := *create.Shell
		anew.HasSession = false
		create.Shell = &anew
		return create, nil
	}
	if _, err := c.Setup().Plan(create); err != nil {
		return create, err
	}
	create.Conversation = conversation
	return create, nil
}

// lend returns what runs in the terminal, which finds its transcript.
func (c continuing) lend(ctx context.Context, session protocol.SessionID, id protocol.ConversationID, taken *chat.Continued) (launch.Lent, error) {
	if err := c.history.Bring(session, id); err != nil {
		return launch.Lent{}, err
	}
	return c.agents.Lend(ctx, codingagent.Launch{Session: session, Command: taken.Command, Dir: taken.Dir})
}

// A handover is a conversation with the account that it needs in a terminal.
type handover struct {
	launch.Owner
	taken *chat.Continued
}

// Return implements [launch.Owner].
func (h *handover) Return() {
	h.Owner.Return()
	h.taken.Back()
}
