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

	// MaxInputUnacked is how much input of one client may be under way
	// between the relay and write(2) in the sandbox.
	MaxInputUnacked = 64 << 10
	// MaxInputQueued is how much input may wait for one PTY.
	MaxInputQueued = 256 << 10

	// LogWindowBytes is how much output an agent keeps of each terminal.
	LogWindowBytes = 4 << 20
	// RingBytes is how much output a relay keeps of each terminal.
	RingBytes = 1 << 20
	// MaxReplayBytes is how much output an attach without a position gets.
	MaxReplayBytes = 256 << 10

	// MinCols, MaxCols, MinRows and MaxRows bound a terminal's size; larger
	// requests are clamped, smaller ones refused.
	MinCols, MaxCols = 1, 1000
	MinRows, MaxRows = 1, 1000
	// DefaultCols and DefaultRows are a terminal's size before its controller
	// says another.
	DefaultCols, DefaultRows = 80, 24

	// MaxPresenceViewers bounds the viewers a presence message names.
	MaxPresenceViewers = 50
	// MaxCommandsInFlight bounds the commands under way to one sandbox.
	MaxCommandsInFlight = 32
	// MaxPTYs bounds the terminals of one sandbox.
	MaxPTYs = 256
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
	// PingWatched and PingIdle are the intervals of PING on the control
	// stream while somebody watches a terminal, and otherwise.
	PingWatched = 500 * time.Millisecond
	PingIdle    = 5 * time.Second
	// HandshakeTimeout bounds the time from the first byte to WELCOME.
	HandshakeTimeout = 5 * time.Second
)
