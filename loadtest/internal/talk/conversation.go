package talk

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
)

// Wait bounds how long a turn may take beyond what it is told to.
const Wait = 30 * time.Second

// A Conversation is one with a stand-in for Claude Code, and the socket by which
// its owner sends.
type Conversation struct {
	*Ear
	ID   protocol.ConversationID
	Chat *client.Chat
}

// Open begins a conversation, which measures as [NewEar] says. The caller closes
// it, also after an error, unless it is nil.
func Open(ctx context.Context, owner *client.User, rec *measure.Recorder, first, line string) (*Conversation, error) {
	id, err := owner.CreateChat(ctx, "claude", ".")
	if err != nil {
		return nil, err
	}
	c := &Conversation{Ear: NewEar(rec, first, line), ID: id}
	c.Chat = client.OpenChat(context.WithoutCancel(ctx), owner, client.ChatOptions{}, c.Ear)
	if err := c.Chat.Follow(ctx, c.ID, 0); err != nil {
		return c, err
	}
	return c, c.Subscribed(ctx, Wait)
}

// Close ends the socket.
func (c *Conversation) Close() { c.Chat.Close() }

// Say sends a message and waits for the end of its run.
func (c *Conversation) Say(ctx context.Context, text string) error {
	before := c.asked()
	if err := c.send(ctx, text); err != nil {
		return err
	}
	return c.Runs(ctx, Wait, before+1)
}

// Begin sends a message.
func (c *Conversation) Begin(ctx context.Context, text string) error {
	c.asked()
	return c.send(ctx, text)
}

// Abort ends the run.
func (c *Conversation) Abort(ctx context.Context) error {
	return c.Chat.Say(ctx, map[string]any{"type": "chat.abort", "sessionId": c.ID})
}

func (c *Conversation) send(ctx context.Context, text string) error {
	return c.Chat.Say(ctx, map[string]any{"type": "chat.send", "sessionId": c.ID, "content": text})
}

// wordRate is how many words a second a program writes for [Words].
const wordRate = 100

// Words is a message that brings words for so long, at least two.
func Words(lasts time.Duration) string {
	return fmt.Sprintf("deltas:%d@%d", max(2, int(lasts.Seconds()*wordRate)), wordRate)
}

// A Sayer sends a message, and waits for the end of its run.
type Sayer interface {
	Say(ctx context.Context, text string) error
}

// Repeat sends a message so many times.
func Repeat(ctx context.Context, who Sayer, text string, times int) error {
	for range times {
		if err := who.Say(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
