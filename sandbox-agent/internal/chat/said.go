package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A Saying is a person's message as a conversation's log has it.
type Saying struct {
	ID   string
	Text string // masked
	At   time.Time
	From *protocol.ChatFrom
}

// maxSayings bounds those that Said returns.
const maxSayings = 4096

// Said returns what persons have said in a conversation, the latest of it as far
// as the log has it, in order.
func (c *Chats) Said(session protocol.SessionID, id protocol.ConversationID) (all []Saying, err error) {
	if _, err := c.Get(session, id); err != nil {
		return nil, err
	}
	o, err := c.acquire(id)
	if err != nil {
		return nil, err
	}
	defer c.release(o)
	at := o.log.Position()
	if at.Last == 0 {
		return nil, nil
	}
	reader, _ := o.log.Read(at.First-1, at.Last)
	defer reader.Close()
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e protocol.ChatEvent
		if !bytes.Contains(entry.JSON, []byte(`"user"`)) || json.Unmarshal(entry.JSON, &e) != nil || e.Role != "user" || e.Kind != protocol.ChatText || e.Content == nil {
			continue
		}
		when, _ := time.Parse(time.RFC3339Nano, e.Timestamp) // then it is at no time
		if len(all) == maxSayings {
			all = all[1:]
		}
		all = append(all, Saying{ID: e.ID, Text: *e.Content, At: when, From: e.From})
	}
}
