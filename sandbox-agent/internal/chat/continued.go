package chat

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A Continued is a conversation that goes on in a terminal, until Back is called.
// Nothing can be sent meanwhile, and whoever follows knows where it is.
type Continued struct {
	// Static.
	Command provider.Command // what people use there
	Dir     string           // absolute; where it works
	Native  string           // the provider's id, which nobody outside knows
	chats   *Chats
	owner   *owner
	once    sync.Once
}

// Continue hands a conversation of session over to the terminal pty, for a user
// who may send a message there now. When it returns, the conversation's own process
// has ended. It fails with the codes of chat.send for who may not, or while a run
// is under way or a terminal has the provider's session open; with KindConflict
// when nothing was said yet; and with KindUnavailable when ctx ends.
func (c *Chats) Continue(ctx context.Context, session protocol.SessionID, id protocol.ConversationID, user protocol.UserID, pty protocol.PTYID) (*Continued, error) {
	info, err := c.Get(session, id)
	if err != nil {
		return nil, err
	}
	dir, err := c.within(info.ProjectPath)
	if err != nil {
		return nil, err
	}
	busy := info.Native != "" && c.o.Programs.Resumed(session, info.Native)
	o, err := c.acquire(id)
	if err != nil {
		return nil, err
	}
	taken := &Continued{Dir: dir, chats: c, owner: o}
	resting := make(chan struct{})
	o.do(func() {
		taken.Native = o.info().Native
		taken.Command, err = o.handOver(user, pty, dir, busy, resting)
	})
	if err != nil {
		c.release(o)
		return nil, err
	}
	select {
	case <-resting:
	case <-o.gone:
		err = protocol.Errorf(protocol.KindUnavailable, "the sandbox's agent is ending")
	case <-ctx.Done():
		err = protocol.Fault(protocol.KindUnavailable, context.Cause(ctx))
	}
	if err != nil {
		taken.Back()
		return nil, err
	}
	return taken, nil
}

// Back ends that the conversation goes on in the terminal, of which nothing runs
// any more. It may be called again.
func (c *Continued) Back() {
	c.once.Do(func() {
		c.owner.do(c.owner.takeBack)
		c.chats.release(c.owner)
	})
}

// handOver has the conversation go on in a terminal, and returns what people use
// there. resting is closed when the process that waits for a message is gone.
func (o *owner) handOver(user protocol.UserID, pty protocol.PTYID, dir string, busy bool, resting chan struct{}) (provider.Command, error) {
	p, err := o.mayHandOver(user, busy)
	if err != nil {
		return provider.Command{}, err
	}
	command, err := provider.Continue(p, o.info().Native, dir)
	if err != nil {
		return provider.Command{}, err
	}
	o.terminal = pty
	o.work.dismiss(o)
	o.resting = append(o.resting, resting)
	o.tellState()
	return command, nil
}

// mayHandOver returns the provider, and why a user may not go on in a terminal now:
// in the order in which chat.send is refused.
func (o *owner) mayHandOver(user protocol.UserID, busy bool) (provider.Provider, error) {
	p, known := provider.ByName(o.chats.o.Providers, o.info().Provider)
	switch {
	case !known:
		return nil, fault(protocol.ChatUnsupportedProvider, "Provider %q is not available.", o.info().Provider)
	case !o.room.May(user, time.Now()):
		return nil, refusal(protocol.ChatNotController, string(o.id))
	case o.busy():
		return nil, fault(protocol.ChatRunInProgress, "The coding agent of session %q is working: stop it first.", o.id)
	case o.terminal != "" || busy:
		return nil, fault(protocol.ChatRunInProgress, "Session %q is open in a terminal already.", o.id)
	case o.info().Native == "":
		return nil, protocol.Errorf(protocol.KindConflict, "nothing was said yet that could go on in a terminal")
	}
	return p, nil
}

// takeBack has the conversation go on here.
func (o *owner) takeBack() {
	o.terminal = ""
	o.tellState()
}
