package chat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

// Say begins a run with a message that came with a command of another kind, as
// chat.send would. Of context only the coding agent knows.
func (c *Chats) Say(command *jws.Command, body *op.ChatSend, context string) error {
	info, err := c.Get(command.Target.SessionID, body.Conversation)
	if err == nil {
		err = c.sendIn(command, body, info, context)
	}
	if err != nil {
		c.counts.refused(err)
	}
	return err
}

// Stop stops a conversation's run for a user, as chat.abort would.
func (c *Chats) Stop(session protocol.SessionID, id protocol.ConversationID, user protocol.UserID) error {
	err := c.ask(session, id, func(o *owner) error { return o.abort(user) })
	if err != nil {
		c.counts.refused(err)
	}
	return err
}

// A Listening hears a conversation's events, which are masked. It is for one
// goroutine, and must be closed.
type Listening struct {
	owner *owner
	log   *chatlog.Follower
}

// Listen hears what happens in a conversation behind the event after, as far as its
// log has it. state is how it stands now.
func (c *Chats) Listen(session protocol.SessionID, id protocol.ConversationID, after uint64) (l *Listening, state protocol.ChatState, err error) {
	if _, err := c.Get(session, id); err != nil {
		return nil, state, err
	}
	o, err := c.acquire(id)
	if err != nil {
		return nil, state, err
	}
	l = &Listening{owner: o}
	if !o.do(func() {
		l.log, _ = o.log.Subscribe(after)
		state = o.state()
	}) {
		c.release(o)
		return nil, state, protocol.Errorf(protocol.KindUnavailable, "the conversation is ending")
	}
	return l, state, nil
}

// Next waits for the next event. It fails with io.EOF when the conversation was
// removed, and with the cause of ctx's end where there is none yet. Events that the log has dropped, or
// that hold what has become a secret, are left out.
func (l *Listening) Next(ctx context.Context) (e protocol.ChatEvent, err error) {
	for {
		entry, err := l.log.Next(ctx)
		var reset *chatlog.Reset
		var gap chatlog.ErrGap
		switch {
		case err == nil:
			e = protocol.ChatEvent{}
			if json.Unmarshal(entry.JSON, &e) == nil {
				return e, nil
			}
		case errors.As(err, &reset):
		case errors.As(err, &gap):
			l.log.Close()
			l.log, _ = l.owner.log.Subscribe(gap.First - 1)
		case errors.Is(err, chatlog.ErrEnded):
			return e, io.EOF
		default:
			return e, err
		}
	}
}

// Close ends the listening.
func (l *Listening) Close() {
	l.log.Close()
	l.owner.chats.release(l.owner)
}

// MayStop returns why a user may not stop a conversation's run.
func (c *Chats) MayStop(session protocol.SessionID, id protocol.ConversationID, user protocol.UserID) error {
	return c.ask(session, id, func(o *owner) error {
		if !o.room.MayAbort(user, time.Now()) {
			return refusal(protocol.ChatNotController, string(o.id))
		}
		return nil
	})
}
