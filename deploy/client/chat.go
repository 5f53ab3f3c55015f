package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// maxChatFrame bounds a frame from a chat socket, in bytes.
const maxChatFrame = 4 << 20

// ChatOptions say how to follow conversations.
type ChatOptions struct {
	Relay int // index of the first relay to try, in the user's list
	// Features are what chat.hello opts in to; nil: it isn't said, and only the
	// seed's kinds come.
	Features []string
	Once     bool // don't reconnect
	// Dialing, if not nil, bounds how many sockets connect at once: an attempt
	// sends to it and receives afterwards.
	Dialing chan struct{}
}

// A ChatFrame is what a chat socket brings.
type ChatFrame struct {
	At           time.Time
	Kind         protocol.ChatKind
	Conversation protocol.ConversationID // empty: of none
	Seq          uint64                  // 0: no event of a conversation
	JSON         []byte                  // the whole frame, valid only during the call
}

// A ChatHandler gets what a chat socket brings. Its methods are called one at a
// time, and must neither block nor call the Chat.
type ChatHandler interface {
	Frame(ChatFrame)
	// Lost says that a socket has ended.
	Lost(at time.Time, why error)
}

// A Chat follows conversations by a socket. When that ends it reconnects as a web
// client does, and subscribes with the number of the last event that it has.
type Chat struct {
	// Static after construction.
	user  *User
	opts  ChatOptions
	to    ChatHandler
	quit  chan struct{} // closed by Close
	ended chan struct{} // closed when it has ended
	once  sync.Once     // closes quit

	relays relays // owned by run

	mu sync.Mutex
	// Guarded by mu.
	conn    *websocket.Conn // nil between two sockets
	up      chan struct{}   // closed when conn is set, replaced when it is lost
	marks   map[protocol.ConversationID]uint64
	sockets int // opened so far
}

// OpenChat starts a Chat; Close ends it, as does ctx.
func OpenChat(ctx context.Context, user *User, opts ChatOptions, to ChatHandler) *Chat {
	c := &Chat{
		user: user, opts: opts, to: to, quit: make(chan struct{}), ended: make(chan struct{}),
		relays: relays{known: user.opts, at: opts.Relay}, up: make(chan struct{}),
		marks: map[protocol.ConversationID]uint64{},
	}
	go c.run(ctx) // Close waits for it
	return c
}

// Close ends the Chat. No method of its handler is called afterwards.
func (c *Chat) Close() {
	c.once.Do(func() { close(c.quit) })
	<-c.ended
}

// Ended is closed when the Chat has ended.
func (c *Chat) Ended() <-chan struct{} { return c.ended }

// Sockets returns how many sockets were opened so far.
func (c *Chat) Sockets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sockets
}

// Mark returns the number of the last event of a conversation that has come.
func (c *Chat) Mark(id protocol.ConversationID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.marks[id]
}

// Follow subscribes to a conversation, from behind the event mark on, now and on
// every further socket.
func (c *Chat) Follow(ctx context.Context, id protocol.ConversationID, mark uint64) error {
	c.mu.Lock()
	c.marks[id] = max(c.marks[id], mark)
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return nil // the next socket subscribes
	}
	return write(ctx, conn, subscription(map[protocol.ConversationID]uint64{id: mark}))
}

// Say sends a message. Between two sockets it waits for the next one. A message
// may be lost with its socket.
func (c *Chat) Say(ctx context.Context, message any) error {
	for {
		c.mu.Lock()
		conn, up := c.conn, c.up
		c.mu.Unlock()
		if conn != nil {
			return write(ctx, conn, message)
		}
		select {
		case <-up:
		case <-c.ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func write(ctx context.Context, conn *websocket.Conn, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageText, data)
}

// subscription is a chat.subscribe.
func subscription(marks map[protocol.ConversationID]uint64) any {
	type entry struct {
		SessionID protocol.ConversationID `json:"sessionId"`
		LastSeq   uint64                  `json:"lastSeq"`
	}
	sessions := make([]entry, 0, len(marks))
	for id, mark := range marks {
		sessions = append(sessions, entry{id, mark})
	}
	return map[string]any{"type": "chat.subscribe", "sessions": sessions}
}

func (c *Chat) run(ctx context.Context) {
	defer close(c.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-c.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := c.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		c.to.Lost(time.Now(), err)
		if c.opts.Once {
			return
		}
		if time.Since(began) > mostPause {
			pause = firstPause
		}
		if status, ok := errors.AsType[*StatusError](err); ok && status.Status == http.StatusUnauthorized {
			c.user.forget()
		}
		if websocket.CloseStatus(err) == 4401 {
			c.user.forget()
		}
		c.relays.advance()
		select {
		case <-time.After(pause/2 + mathrand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, mostPause)
	}
}

// attempt opens a socket, subscribes, and reads until it ends.
func (c *Chat) attempt(ctx context.Context) error {
	conn, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	defer c.down()
	if err := c.greet(ctx, conn); err != nil {
		return err
	}
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if err := c.take(data, time.Now()); err != nil {
			return err
		}
	}
}

func (c *Chat) open(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if c.opts.Dialing != nil {
		select {
		case c.opts.Dialing <- struct{}{}:
			defer func() { <-c.opts.Dialing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	origin := c.relays.choose("", time.Now())
	t, err := c.user.ChatTicket(ctx, origin)
	if err != nil {
		return nil, err
	}
	conn, _, err := websocket.Dial(ctx, t.URL, &websocket.DialOptions{
		HTTPClient: c.user.sockets, HTTPHeader: http.Header{"Origin": {origin}}, Subprotocols: []string{"ticket." + t.Ticket},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(maxChatFrame)
	return conn, nil
}

// greet says what the client understands, and subscribes to what it follows.
func (c *Chat) greet(ctx context.Context, conn *websocket.Conn) error {
	if c.opts.Features != nil {
		if err := write(ctx, conn, map[string]any{"type": "chat.hello", "features": c.opts.Features}); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.sockets++
	c.conn = conn
	close(c.up)
	marks := maps.Clone(c.marks)
	c.mu.Unlock()
	if len(marks) == 0 {
		return nil
	}
	return write(ctx, conn, subscription(marks))
}

// down notes that the socket has ended.
func (c *Chat) down() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn, c.up = nil, make(chan struct{})
	}
}

// take hands a frame on, and keeps the mark.
func (c *Chat) take(data []byte, at time.Time) error {
	var head struct {
		Kind protocol.ChatKind       `json:"kind"`
		ID   protocol.ConversationID `json:"sessionId"`
		Seq  uint64                  `json:"seq"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return violation("a frame is no JSON: %w", err)
	}
	if head.Kind == "" {
		return violation("a frame without a kind: %.64s", data)
	}
	if head.Seq > 0 {
		c.mu.Lock()
		c.marks[head.ID] = max(c.marks[head.ID], head.Seq)
		c.mu.Unlock()
	}
	c.to.Frame(ChatFrame{At: at, Kind: head.Kind, Conversation: head.ID, Seq: head.Seq, JSON: data})
	return nil
}

// A ChatTicket opens one chat socket.
type ChatTicket struct {
	URL    string `json:"ws_url"`
	Ticket string `json:"ticket"`
}

// ChatTicket buys a ticket for a chat socket at the relay with that origin.
func (u *User) ChatTicket(ctx context.Context, origin string) (ChatTicket, error) {
	var t ChatTicket
	err := u.withGrant(ctx, origin, http.MethodPost, origin+"/chat-session", map[string]any{"session_id": u.opts.Session}, &t)
	return t, err
}

// CreateChat makes a conversation with a provider's coding agent, which works in
// a folder of the workspace.
func (u *User) CreateChat(ctx context.Context, provider, path string) (protocol.ConversationID, error) {
	var answer struct {
		Success bool `json:"success"`
		Data    struct {
			SessionID protocol.ConversationID `json:"sessionId"`
		} `json:"data"`
	}
	err := u.withGrant(ctx, u.opts.Relays[0], http.MethodPost, u.opts.Relays[0]+"/api/providers/sessions",
		map[string]any{"provider": provider, "projectPath": path}, &answer)
	if err == nil && !answer.Success {
		err = errors.New("no conversation was made")
	}
	return answer.Data.SessionID, err
}
