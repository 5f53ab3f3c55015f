package chat

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

// Said returns what a conversation's log says that its transcript doesn't.
func (c *Chats) Said(session protocol.SessionID, id protocol.ConversationID) (chatlog.Said, error) {
	if _, err := c.Get(session, id); err != nil {
		return chatlog.Said{}, err
	}
	o, err := c.acquire(id)
	if err != nil {
		return chatlog.Said{}, err
	}
	defer c.release(o)
	return c.indexes.Said(o.log)
}
