package protocol

import "time"

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
	// MaxClientBytes bounds the name under which a client's input is counted.
	MaxClientBytes = 64

	// MaxBrowserMessage bounds a WebSocket message from a browser; a larger
	// one closes the socket with 1009.
	MaxBrowserMessage = 64 << 10
	// MaxTokenBytes bounds a compact JWS.
	MaxTokenBytes = 64 << 10
	// MaxRevocationBytes bounds a revocation list, of however many compact JWS.
	MaxRevocationBytes = 16 << 20

	// MaxInputUnacked is how much input of one client may be under way
	// between the relay and write(2) in the sandbox.
	MaxInputUnacked = 64 << 10
	// MaxInputQueued is how much input may wait for one PTY.
	MaxInputQueued = 256 << 10

	// LogWindowBytes is how much output an agent keeps of each terminal.
	LogWindowBytes = 4 << 20
	// RingBytes is how much output a relay keeps of each terminal.
	RingBytes = 1 << 20
	// RelayRingBytes is how much output a relay keeps of all terminals. Beyond
	// it each terminal's ring shrinks.
	RelayRingBytes = 256 << 20
	// MaxReplayBytes is how much output an attach without a position gets
	// where there is no keyframe.
	MaxReplayBytes = 256 << 10

	// MaxKeyframeBytes bounds a keyframe.
	MaxKeyframeBytes = 16 << 20
	// MaxKeyframeHistory bounds the lines above the screen in a keyframe.
	MaxKeyframeHistory = 1000
	// MaxKeyframePiece bounds the bytes in one KEYFRAME.
	MaxKeyframePiece = MaxStreamWrite - frameHeaderBytes - keyframeHeaderBytes

	// MaxOutputUnacked is how much output a terminal.v2 client may leave
	// unacknowledged; AckBytes is how much it may render before it says so.
	MaxOutputUnacked = 256 << 10
	AckBytes         = 64 << 10
	// MaxPaceLag is how far the slowest pace-setter may be behind before the
	// agent stops reading the terminal; PaceBytes is how often a relay reports
	// where a pace-setter is.
	MaxPaceLag = 1 << 20
	PaceBytes  = 128 << 10
	// MinPaceRate is how fast, in bytes per second, a pace-setter that is
	// behind must be to stay one.
	MinPaceRate = 256 << 10
	// MaxPacers bounds the pace-setters of one terminal.
	MaxPacers = 256
	// MaxUnsent is how much of the log may wait for a relay whose tunnel was
	// lost while somebody watched.
	MaxUnsent = 3 << 20

	// MinCols, MaxCols, MinRows and MaxRows bound a terminal's size; larger
	// requests are clamped, smaller ones refused.
	MinCols, MaxCols = 1, 1000
	MinRows, MaxRows = 1, 1000
	// DefaultCols and DefaultRows are a terminal's size before its controller
	// says another.
	DefaultCols, DefaultRows = 80, 24

	// MaxPersonGrants bounds the grants of one person on the list of a terminal
	// stream.
	MaxPersonGrants = 64
	// MaxPresenceViewers bounds the viewers a presence message names.
	MaxPresenceViewers = 50
	// MaxCommandsInFlight bounds the commands under way to one sandbox.
	MaxCommandsInFlight = 32
	// MaxPTYs bounds the terminals of one sandbox.
	MaxPTYs = 256
	// MaxAgentNameBytes bounds the name of a coding agent.
	MaxAgentNameBytes = 64
	// MaxExecuteBytes bounds the text of execute.
	MaxExecuteBytes = 16 << 10
	// MaxConnectBytes bounds what an agent that isn't registered may send to
	// the control plane, and what it may get.
	MaxConnectBytes = 64 << 10
	// MaxEnvNames bounds the variables of one env.apply.
	MaxEnvNames = 500
	// MaxApprovals bounds what waits for a decision in one sandbox.
	MaxApprovals = 100
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
	// ControlGrace is how long control is kept for a controller whose last
	// socket is gone (seed 001).
	ControlGrace = 10 * time.Second
	// ControlIdle is how long a controller may type nothing while somebody asks
	// for control.
	ControlIdle = 30 * time.Second
	// SlowAfter is how long a viewer may stand at its limit before it is moved
	// ahead by a keyframe, or a slow pace-setter loses the role.
	SlowAfter = 2 * time.Second
	// KeyframeInterval is the least time between two keyframes of a terminal.
	KeyframeInterval = 250 * time.Millisecond
	// PingWatched and PingIdle are the intervals of PING on the control
	// stream while somebody watches a terminal, and otherwise.
	PingWatched = 500 * time.Millisecond
	PingIdle    = 4 * time.Second
	// StreamStall is how long the reader of a stream in the tunnel may take
	// nothing while its window is full; then the writer resets the stream.
	StreamStall = 30 * time.Second
	// GrantWait is how long somebody sees a terminal on a new stream, or waits to
	// see it, without an answer to the grant.
	GrantWait = 5 * time.Second
	// HeldNotice is how long output may be held back, since it may be the
	// beginning of a secret, before its controller is told.
	HeldNotice = time.Second
	// EgressTTL is how long a connection is held for somebody's decision (seed
	// 001), BrokerTTL how long one about a secret may take: nobody waits for it.
	EgressTTL = 60 * time.Second
	BrokerTTL = 10 * time.Minute
	// HandshakeTimeout bounds the time from the first byte to WELCOME.
	HandshakeTimeout = 5 * time.Second
	// ConnectTimeout is the life of a connection of an agent that isn't
	// registered.
	ConnectTimeout = 10 * time.Second

	// MaxLastMessage bounds what an AgentTurn tells of an agent's last message.
	MaxLastMessage = 4096
	// MaxMCPBody bounds a request of MCP, MaxMCPBatch the messages in one, and
	// MaxMCPDepth how deep its JSON may nest.
	MaxMCPBody  = 4 << 20
	MaxMCPBatch = 100
	MaxMCPDepth = 100
	// MaxGatewayAnswer bounds an answer of the integration gateway.
	MaxGatewayAnswer = 4 << 20
)
