package chatapi

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
)

// read takes the client's frames until the socket ends.
func (c *client) read(conn *gateway.Conn) error {
	for {
		_, data, err := conn.Read(c.ctx) // a binary frame counts as UTF-8
		if err != nil {
			return err
		}
		c.take(data)
	}
}

// take does what a frame asks for, or lets it be done: what may wait for the
// control plane or the sandbox holds up only what comes after it for the same
// conversation.
func (c *client) take(data []byte) {
	q, err := chatsocket.Decode(data)
	if err != nil {
		fault, _ := chatsocket.ParseFault(err)
		c.api.Metrics.request("")
		c.refuse(fault, q.SessionID, "")
		return
	}
	c.api.Metrics.request(q.Type)
	c.size = len(data)
	switch q.Type {
	case chatsocket.TypeSend:
		c.forConversation(q, func() { c.send(q) })
	case chatsocket.TypeAbort:
		c.forConversation(q, func() { c.abort(q) })
	case chatsocket.TypeSubscribe:
		c.subscribe(q)
	case chatsocket.TypePermission:
		if q.RequestID != "" {
			c.queue("permission "+q.RequestID, "", "", func() { c.decide(q) })
		}
	case chatsocket.TypeHello:
		c.echo.Store(slices.Contains(q.Features, chatsocket.FeatureEcho))
		c.socket.Hello()
	case chatsocket.TypeRequestControl, chatsocket.TypeGrantControl, chatsocket.TypeRevokeControl:
		c.forConversation(q, func() { c.control(q) })
	case chatsocket.TypeReauth:
		c.reauth(q.Grant) // what comes after it has the new grant
	default:
		c.refuse(chatsocket.NewFault(protocol.ChatUnknownMessageType, q.Type), "", "")
	}
}

// subscribe follows conversations. One for which something waits is followed after
// that.
func (c *client) subscribe(q chatsocket.Request) {
	c.api.Metrics.MarksIgnored.Add(float64(q.Ignored))
	now := q.Sessions[:0]
	for _, mark := range q.Sessions {
		if lane := laneOf(mark.SessionID); c.lanes.busy(lane) {
			c.queue(lane, "", "", func() { c.socket.Follow(c.ctx, mark) })
			continue
		}
		now = append(now, mark)
	}
	c.socket.Follow(c.ctx, now...)
}

// control asks the turn-taking rules for what q asks for.
func (c *client) control(q chatsocket.Request) {
	grant, _ := c.socket.Grant()
	if !grant.Allows(c.session, "", protocol.CapChat) {
		c.refuse(chatsocket.NewFault(protocol.ChatForbidden, string(q.SessionID)), q.SessionID, "")
		return
	}
	var err error
	switch q.Type {
	case chatsocket.TypeRequestControl:
		err = c.socket.RequestControl(c.ctx, q.SessionID)
	case chatsocket.TypeGrantControl:
		err = c.socket.GrantControl(c.ctx, q.SessionID, q.To)
	case chatsocket.TypeRevokeControl:
		err = c.socket.RevokeControl(c.ctx, q.SessionID)
	}
	if err != nil {
		c.refuse(faultOf(err, q.SessionID), q.SessionID, "")
	}
}

// reauth puts the socket under a newer grant of the same person and session.
func (c *client) reauth(token string) {
	grant, err := c.api.Desk.Keys.Grant(c.ctx, token)
	if err == nil {
		err = access.Current(grant)
	}
	if err == nil {
		err = c.socket.Renew(grant, token)
	}
	if err != nil {
		c.refuse(protocol.ChatFault{Code: protocol.ChatForbidden, Text: "The grant is not a valid one for this person and session."}, "", "")
	}
}
