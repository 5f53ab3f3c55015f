// Package chathub shares conversations with coding agents among their sockets: a
// hub has one stream to the agent for all who follow a conversation, and a ring
// of its latest events.
//
// A socket of package chatapi follows any number of conversations of one session.
// It joins a conversation: the hub knows of it. It is admitted: the agent has
// accepted its grant, or another one of the same person. It follows: it has a
// cursor in the ring and is sent chat_subscribed, what the cursor is behind, and
// then events as they come.
//
// Owners. One goroutine, run, owns a hub: who has joined, whose grants are good,
// whose turn it is. Beside it a dialer keeps the stream, whose reader hands events
// to the ring and says which sockets have something to write. A socket has one
// writer, which takes from all its cursors in turns, so that a flood in one
// conversation delays no other. Nothing is copied per socket: an event is framed
// once and written from the ring; a socket queues only which cursors have moved,
// what it is told itself, and, while a mark is older than the ring, a bounded part
// of the agent's log.
//
// Lock order: Set.mu, then ring.mu, then Socket.mu. Nothing is written to a socket
// or a stream while one of them is held, and no event is posted to a hub.
package chathub

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
)

// A Key names one conversation.
type Key struct {
	Sandbox      protocol.SandboxID
	Session      protocol.SessionID
	Conversation protocol.ConversationID
}

// A Conn is the WebSocket of a client.
type Conn interface {
	// WriteFrames writes complete WebSocket frames.
	WriteFrames(frames net.Buffers) error
	// Ping sends a ping.
	Ping() error
	// LastHeard returns when the peer was last heard.
	LastHeard() time.Time
	// Answered returns the highest number of a ping by [replay.PingFrame] that the
	// peer has answered, 0: none.
	Answered() uint64
	// Close ends the socket with a close code of protocol.Kind.
	Close(code int, reason string)
}

// Options configure a Set.
type Options struct {
	Tunnels agentstream.Tunnels
	Grants  *lifetime.Grants // end sockets with their grants; nil: nothing is revoked
	Log     *slog.Logger
	Metrics *Metrics
}

// A Guest is what chatapi knows of a socket.
type Guest struct {
	Grant   *jws.Grant         // carries view for Session
	Token   string             // the grant in compact form, for the agent
	Session protocol.SessionID // whose conversations it may follow
}

// A State is what a relay knows of a conversation. The agent decides.
type State struct {
	Connected   bool   // there is a stream to the agent
	Provider    string // "claude", "codex", …
	Unsupported bool   // the sandbox doesn't run the provider
	Run         protocol.RunState
	CommandID   protocol.CommandID // that began the present run
	// ClientMessageID is the socket's user's own name of the message that began it;
	// empty: it has none, or is somebody else's.
	ClientMessageID string
	Controller      protocol.UserID    // who may send; empty: the first who does
	Mine            bool               // that is the socket's user
	LastSeq         uint64             // of the newest event, 0: none
	Pending         []protocol.Pending // open questions, oldest first; shared, not to be changed
	Terminal        protocol.PTYID     // where the conversation goes on; empty: nowhere else
}

// ErrNoSuch says that a sandbox has no such conversation.
var ErrNoSuch = protocol.Fault(protocol.KindNotFound, errors.New("chathub: no such conversation"))

// Limits of one relay.
const (
	// idleTime is how long a hub that nobody has joined keeps its stream.
	idleTime = 30 * time.Second
	// maxSandboxHubs and maxPersonHubs bound the hubs of one sandbox, and those
	// that one person has joined. Idle ones give way.
	maxSandboxHubs = 2048
	maxPersonHubs  = 1024
	// maxPersonFollows bounds the conversations of one person's sockets, each
	// counted once per socket.
	maxPersonFollows = 8192
	// maxOwn bounds what waits for one socket beside events, in bytes. Beyond it
	// the socket is closed.
	maxOwn = 1 << 20
	// maxNews is the part of maxOwn beyond which news and presence are dropped.
	maxNews = 256 << 10
	// maxReplay bounds what is read ahead of the agent's log for one socket, in
	// bytes. One event may be more.
	maxReplay = 256 << 10
	// maxName bounds a user's name, in bytes.
	maxName = 128
	// maxExpected bounds the commands of a socket whose texts it isn't sent.
	maxExpected = 64
)

// Times. They are variables so that a test can change them.
var (
	// openTimeout bounds the wait for a conversation that nobody has joined yet.
	openTimeout = 5 * time.Second
	// ackPatience bounds how long one Follow waits, so that acks come in order. Those
	// that come later come in any order.
	ackPatience = time.Second
	// grantWait is how long somebody waits for an answer about a grant.
	grantWait = protocol.GrantWait
	// pingInterval is how often a socket is pinged. It is dead when the next ping is
	// due and it has answered nothing.
	pingInterval = 30 * time.Second
)
