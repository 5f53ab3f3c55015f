package chatapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/chathub"
)

// A client is one chat socket's client: what it asks for.
type client struct {
	// Static after construction.
	api     *API
	socket  *chathub.Socket
	user    protocol.UserID
	session protocol.SessionID
	ctx     context.Context // ends with the socket

	size int // of the frame that is being taken, in bytes; owned by the reader

	lanes lanes
	echo  atomic.Bool // it wants its own messages as events, too

	expecting sync.Mutex // held for socket.Expect
}

// refuse tells the client why a request is refused. A conversation is named where
// the request concerned a run, as a web client then ends its wait for that, and
// where it concerned control, which only clients of our own kinds ask for.
func (c *client) refuse(fault protocol.ChatFault, conversation protocol.ConversationID, clientMessageID string) {
	c.api.Metrics.Refused.WithLabelValues(string(fault.Code)).Inc()
	frame := chatsocket.Frame(fault, conversation, time.Now())
	frame.ClientMessageID = clientMessageID
	c.socket.TellJSON(frame)
}

// forConversation has do done for the conversation that q must name, after what
// was asked for it before.
func (c *client) forConversation(q chatsocket.Request, do func()) {
	if q.SessionID == "" {
		c.refuse(chatsocket.NewFault(protocol.ChatSessionIDRequired, q.Type), "", q.ClientMessageID)
		return
	}
	c.queue(laneOf(q.SessionID), q.SessionID, q.ClientMessageID, do)
}

// laneOf returns the name of a conversation's lane.
func laneOf(id protocol.ConversationID) string { return "conversation " + string(id) }

// errBusy is what a client is told whose requests wait in too great a number.
var errBusy = protocol.ChatFault{Code: protocol.ChatUnavailable, Text: "Too many requests of this connection wait for an answer."}

// queue has do done in a lane, or refuses the request.
func (c *client) queue(lane string, named protocol.ConversationID, clientMessageID string, do func()) {
	size := c.size
	if c.api.weight.add(c.user, size) {
		weighed := func() {
			defer c.api.weight.remove(c.user, size)
			do()
		}
		if c.lanes.add(lane, weighed, c.api.tasks.Go) {
			return
		}
		c.api.weight.remove(c.user, size)
	}
	c.refuse(errBusy, named, clientMessageID)
}

// Renew implements [access.AppSocket]. What the socket refuses leaves it as it is.
func (c *client) Renew(grant *jws.Grant, token string) { c.socket.Renew(grant, token) }

// LoggedOut implements [access.AppSocket].
func (c *client) LoggedOut() { c.socket.Close(protocol.KindUnauthenticated, "logged out") }

// stateOf returns what is known of a conversation. For a client that has left it
// knows nothing, and the sandbox alone decides. It fails if the sandbox isn't
// connected.
func (c *client) stateOf(ctx context.Context, id protocol.ConversationID) (chathub.State, error) {
	state, err := c.socket.State(ctx, id)
	if err != nil && c.ctx.Err() != nil {
		return chathub.State{}, nil
	}
	if err == nil && !state.Connected {
		grant, _ := c.socket.Grant()
		_, err = c.api.Tunnels.Session(grant.Sandbox)
	}
	return state, err
}

// expect notes that the client has shown the text that a command carries.
func (c *client) expect(id protocol.CommandID) {
	c.expecting.Lock()
	defer c.expecting.Unlock()
	c.socket.Expect(id)
}
