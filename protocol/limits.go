package protocol

import "time"

// Sizes of what stands before the bytes of a frame.
const (
	frameHeaderBytes = 5         // type, length
	dataHeaderBytes  = 8         // offset
	inputHeaderBytes = 8 + 8 + 1 // term, sequence, length of the client
	// offset, history, bytes left
	keyframeHeaderBytes = 8 + 1 + 4
	// sequence number, bytes left, length of the origin
	chatHeaderBytes = 8 + 4 + 1
)

// Limits of the wire. A size is in bytes unless its name says otherwise.
const (
	// MaxFramePayload bounds every frame on a tunnel stream. The largest is
	// an OPEN that carries a grant or a command, or a RESULT.
	MaxFramePayload = 128 << 10
	// MaxStreamWrite bounds one write into a lane: one write is one yamux
	// frame, which nothing can overtake.
	MaxStreamWrite = 16 << 10
	// MaxDataBytes bounds the terminal bytes in one DATA frame, so that the
	// frame fits one write.
	MaxDataBytes = MaxStreamWrite - frameHeaderBytes - dataHeaderBytes
	// MaxInputBytes bounds the bytes in one INPUT frame.
	MaxInputBytes = MaxStreamWrite - frameHeaderBytes - inputHeaderBytes - MaxClientBytes
	// MaxClientBytes bounds the id under which a client numbers its input.
	MaxClientBytes = 64

	// MaxBrowserMessage bounds a WebSocket message from a browser; a larger
	// one closes the socket with 1009.
	MaxBrowserMessage = 64 << 10
	// MaxTokenBytes bounds a compact JWS.
	MaxTokenBytes = 64 << 10
	// MaxRevocationBytes bounds a revocation list, of however many compact JWS.
	MaxRevocationBytes = 16 << 20

	// MaxInputUnacked bounds one client's input between the relay and write(2) in
	// the sandbox.
	MaxInputUnacked = 64 << 10
	// MaxInputQueued bounds the input that waits for one PTY.
	MaxInputQueued = 256 << 10

	// LogWindowBytes is how much output an agent keeps of each terminal.
	LogWindowBytes = 4 << 20
	// RingBytes is how much output a relay keeps of each terminal.
	RingBytes = 1 << 20
	// RelayRingBytes is how much output a relay keeps of all terminals. Beyond it
	// each terminal's ring shrinks.
	RelayRingBytes = 256 << 20
	// MaxReplayBytes bounds the output for an attach without a position if there
	// is no keyframe.
	MaxReplayBytes = 256 << 10

	// MaxKeyframeBytes bounds a keyframe.
	MaxKeyframeBytes = 16 << 20
	// MaxKeyframeHistory bounds the lines above the screen in a keyframe.
	MaxKeyframeHistory = 1000
	// MaxKeyframePiece bounds the bytes in one KEYFRAME.
	MaxKeyframePiece = MaxStreamWrite - frameHeaderBytes - keyframeHeaderBytes

	// MaxOutputUnacked bounds the unacknowledged output of a terminal.v2 client;
	// it acknowledges after rendering AckBytes.
	MaxOutputUnacked = 256 << 10
	AckBytes         = 64 << 10
	// MaxPaceLag is the lag of the slowest pace-setter at which the agent stops
	// reading the terminal; a relay reports a pace-setter's progress every
	// PaceBytes.
	MaxPaceLag = 1 << 20
	PaceBytes  = 128 << 10
	// MinPaceRate is the rate, in bytes per second, below which a lagging
	// pace-setter loses the role.
	MinPaceRate = 256 << 10
	// MaxPacers bounds the pace-setters of one terminal.
	MaxPacers = 256
	// MaxUnsent bounds the output that waits for a relay whose tunnel was lost
	// while somebody watched.
	MaxUnsent = 3 << 20

	// MinCols, MaxCols, MinRows and MaxRows bound a terminal's size; larger
	// requests are clamped, smaller ones refused.
	MinCols, MaxCols = 1, 1000
	MinRows, MaxRows = 1, 1000
	// DefaultCols and DefaultRows are a terminal's size until its controller sets
	// another.
	DefaultCols, DefaultRows = 80, 24

	// MaxPersonGrants bounds one person's grants on a terminal stream.
	MaxPersonGrants = 64
	// MaxPresenceViewers bounds the viewers a presence message names.
	MaxPresenceViewers = 50
	// MaxCommandsInFlight bounds the commands being sent to one sandbox.
	MaxCommandsInFlight = 32
	// MaxPTYs bounds the terminals of one sandbox.
	MaxPTYs = 256
	// MaxAgentNameBytes bounds the name of a coding agent.
	MaxAgentNameBytes = 64
	// MaxExecuteBytes bounds the text of execute.
	MaxExecuteBytes = 16 << 10
	// MaxConnectBytes bounds what an unregistered agent may exchange with the
	// control plane, each way.
	MaxConnectBytes = 64 << 10
	// MaxEnvNames bounds the variables of one env.apply.
	MaxEnvNames = 500
	// MaxApprovals bounds the pending approvals of one sandbox.
	MaxApprovals = 100
	// MaxChatFrame bounds a frame from a chat socket; a larger one closes the
	// socket with 1009.
	MaxChatFrame = 1 << 20
	// MaxChatContent bounds the text of one message to a coding agent.
	MaxChatContent = 1 << 20
	// MaxChatInline bounds the JSON of a message that travels in its command. A
	// larger one is put into the sandbox first.
	MaxChatInline = 24 << 10
	// MaxChatEvent bounds one event of a conversation. Longer texts are cut.
	MaxChatEvent = 512 << 10
	// MaxChatPiece bounds the bytes in one CHAT.
	MaxChatPiece = MaxStreamWrite - frameHeaderBytes - chatHeaderBytes - MaxIDBytes
	// ChatRingBytes is how much a relay keeps of each conversation, and
	// RelayChatRingBytes of all. Beyond it each conversation's ring shrinks.
	ChatRingBytes      = 1 << 20
	RelayChatRingBytes = 128 << 20
	// ChatLogBytes is how much an agent keeps of each conversation, and
	// ChatLogsBytes of all.
	ChatLogBytes  = 64 << 20
	ChatLogsBytes = 1 << 30
	// MaxChatRuns is the default bound of the runs of one sandbox.
	MaxChatRuns = 256
	// MaxChatFollowed bounds the conversations that one chat.subscribe names, and
	// those that one socket follows.
	MaxChatFollowed = 256
	// MaxClientMessageID bounds clientMessageId, in characters.
	MaxClientMessageID = 128
	// MaxToolInput bounds a tool's input in an approval; of a larger one there is
	// the SHA-256.
	MaxToolInput = 32 << 10
	// MaxTraceparentBytes bounds a traceparent; a longer one is ignored.
	MaxTraceparentBytes = 128
)

const (
	// ClockSkew is how far two clocks may differ (seed 003).
	ClockSkew = 60 * time.Second
	// MaxCommandTTL bounds ttlMs of a command.
	MaxCommandTTL = 10 * time.Minute
	// DefaultCommandTTL applies when a caller names none (seed 003).
	DefaultCommandTTL = 30 * time.Second
	// MaxGrantTTL bounds the life of a grant.
	MaxGrantTTL = 10 * time.Minute
	// TicketTTL is the life of an unused ticket.
	TicketTTL = 30 * time.Second
	// CookieTTL is the life of an unused socket cookie (seed 000).
	CookieTTL = 30 * time.Minute
	// ControlGrace is how long a controller without a socket keeps control (seed
	// 001).
	ControlGrace = 10 * time.Second
	// ControlIdle is how long a controller may type nothing while somebody else
	// asks for control.
	ControlIdle = 30 * time.Second
	// SlowAfter is how long a viewer may be at its limit before a keyframe moves
	// it ahead, or a slow pace-setter loses the role.
	SlowAfter = 2 * time.Second
	// KeyframeInterval is the least time between two keyframes of a terminal.
	KeyframeInterval = 250 * time.Millisecond
	// PingWatched and PingIdle are the intervals of PING on the control
	// stream while somebody watches a terminal, and otherwise.
	PingWatched = 500 * time.Millisecond
	PingIdle    = 4 * time.Second
	// StreamStall is how long a stream's reader may read nothing while its window
	// is full; then the writer resets the stream.
	StreamStall = 30 * time.Second
	// GrantWait is how long somebody sees a terminal on a new stream, or waits to
	// see it, before the grant is confirmed.
	GrantWait = 5 * time.Second
	// HeldNotice is how long output may be held back as the possible beginning of
	// a secret before its controller is told.
	HeldNotice = time.Second
	// EgressTTL is how long a connection waits for a decision (seed 001).
	// BrokerTTL is the same for a secret, which nothing waits for.
	EgressTTL = 60 * time.Second
	BrokerTTL = 10 * time.Minute
	// ToolTTL is how long a coding agent's tool waits for a decision (seed 002).
	ToolTTL = 55 * time.Second
	// HandshakeTimeout bounds the time from the first byte to WELCOME.
	HandshakeTimeout = 5 * time.Second
	// ConnectTimeout bounds a connection of an unregistered agent.
	ConnectTimeout = 10 * time.Second

	// MaxLastMessage bounds the agent's last message in an AgentTurn.
	MaxLastMessage = 4096
	// MaxMCPBody bounds an MCP request, MaxMCPBatch the messages in one, and
	// MaxMCPDepth the nesting of its JSON.
	MaxMCPBody  = 4 << 20
	MaxMCPBatch = 100
	MaxMCPDepth = 100
	// MaxGatewayAnswer bounds an answer of the integration gateway.
	MaxGatewayAnswer = 4 << 20
)
