package chat

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// JoinKind implements [feature.Joined].
func (c *Chats) JoinKind() protocol.StreamKind { return protocol.StreamChat }

// Join implements [feature.Joined]: a relay follows a conversation for its
// viewers.
func (c *Chats) Join(grant *jws.Grant, raw json.RawMessage) (feature.Stream, any, error) {
	var params protocol.ChatParams
	if err := json.Unmarshal(raw, &params); err != nil || !protocol.ValidConversation(params.ConversationID) {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "malformed params")
	}
	o, err := c.visible(grant, params.SessionID, params.ConversationID)
	if err != nil {
		return nil, nil, err
	}
	var f *follower
	var opened protocol.ChatOpened
	if !o.do(func() { f, opened, err = o.follow(params) }) {
		err = protocol.Errorf(protocol.KindUnavailable, "the conversation is ending")
	}
	if err != nil {
		c.release(o)
		return nil, nil, err
	}
	return f, opened, nil
}

// visible returns the owner of a conversation that a grant allows to view. What
// exists is said to nobody else.
func (c *Chats) visible(grant *jws.Grant, session protocol.SessionID, id protocol.ConversationID) (*owner, error) {
	if !protocol.ValidID(session) || !grant.Allows(session, "", protocol.CapView) {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session")
	}
	if _, err := c.Get(session, id); err != nil {
		return nil, err
	}
	return c.acquire(id)
}

// A Reader serves parts of conversations' logs to relays.
type Reader struct{ Chats *Chats }

var _ feature.Followed = Reader{}

// StreamKind implements [feature.Followed].
func (r Reader) StreamKind() protocol.StreamKind { return protocol.StreamChatRead }

// Follow implements [feature.Followed]: it ends behind the part that was asked
// for.
func (r Reader) Follow(grant *jws.Grant, raw json.RawMessage) (feature.Events, any, error) {
	var params protocol.ChatReadParams
	if err := json.Unmarshal(raw, &params); err != nil || !protocol.ValidConversation(params.ConversationID) {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "malformed params")
	}
	o, err := r.Chats.visible(grant, params.SessionID, params.ConversationID)
	if err != nil {
		return nil, nil, err
	}
	reader, at := o.log.Read(params.After, params.Until)
	opened := protocol.ChatReadOpened{Epoch: at.Epoch, FirstSeq: at.First, Gap: !at.Covers(params.After)}
	return &reading{owner: o, reader: reader}, opened, nil
}

// A reading is a part of a log as CHAT. It is for one goroutine.
type reading struct {
	owner  *owner
	reader *chatlog.Reader
	entry  chatlog.Entry
	sent   int
}

// Next implements [feature.Events].
func (r *reading) Next(ctx context.Context) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.sent == len(r.entry.JSON) {
		entry, err := r.reader.Next()
		if err != nil {
			return nil, err
		}
		r.entry, r.sent = entry, 0
	}
	m := pieceOf(r.entry, r.sent)
	r.sent += len(m.Bytes)
	return m, nil
}

// Close implements [feature.Events].
func (r *reading) Close() {
	r.reader.Close()
	r.owner.chats.release(r.owner)
}

// pieceOf returns the piece of an event behind the first bytes of it.
func pieceOf(entry chatlog.Entry, from int) protocol.Chat {
	rest := entry.JSON[from:]
	n := min(len(rest), protocol.MaxChatPiece)
	return protocol.Chat{Seq: entry.Seq, Left: len(rest) - n, Origin: entry.Origin, Bytes: rest[:n]}
}
