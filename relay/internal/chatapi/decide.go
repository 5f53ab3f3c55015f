package chatapi

import (
	"context"
	"crypto/rand"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// maxDenial bounds the message of a denial, in bytes. The rest is cut off.
const maxDenial = 4 << 10

// decide answers a coding agent's question. It is silent about one that it doesn't
// know or that somebody has answered, as the seed is.
func (c *client) decide(q chatsocket.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	grant, token := c.socket.Grant()
	asked, known := c.socket.Pending(q.RequestID)
	if !known {
		return
	}
	if !grant.Allows(c.session, "", protocol.CapApprove) {
		c.refuse(chatsocket.NewFault(protocol.ChatForbidden, string(asked.SessionID)), "", "")
		return
	}
	decision := decisionOf(q, asked.Revision)
	err := decision.Check()
	var env protocol.CommandEnvelope
	if err == nil {
		who := webapp.Caller{Grant: grant, Token: token, Session: c.session}
		env, err = c.api.sign(ctx, who, op.Op{Kind: op.KindToolDecide, Body: decision}, rand.Text())
	}
	if err == nil {
		_, err = c.api.carry(ctx, env)
	}
	switch protocol.KindOf(err) {
	case protocol.KindNotFound, protocol.KindConflict, protocol.KindEnded: // answered, or over
		return
	}
	if err != nil {
		c.refuse(faultOf(err, asked.SessionID), "", "")
	}
}

// decisionOf returns the operation that answers a question as q does.
func decisionOf(q chatsocket.Request, revision uint64) *op.ToolDecide {
	d := &op.ToolDecide{Approval: q.RequestID, Revision: revision, Decision: protocol.Deny, Message: q.Message}
	if !q.Allow {
		if len(d.Message) > maxDenial {
			n := maxDenial
			for !utf8.RuneStart(d.Message[n]) {
				n--
			}
			d.Message = d.Message[:n]
		}
		return d
	}
	d.Decision, d.Message, d.UpdatedInput, d.Remember = protocol.AllowOnce, "", q.UpdatedInput, q.Remember
	if q.ForSession {
		d.Decision = protocol.AllowAlways
	}
	return d
}
