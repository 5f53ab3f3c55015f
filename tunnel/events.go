package tunnel

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

// Events are what is told to whoever counts what tunnels do. Each may be nil;
// none may block, and each may be called from several goroutines at once.
type Events struct {
	// Handshake hears how the handshake of a connection that wants to register
	// ended, and how long it took. Connections of agents that aren't registered
	// are told to [ListenConfig.Connected] instead.
	Handshake func(c Carrier, outcome HandshakeOutcome, took time.Duration)
	// Waited hears how long a registration waited for its turn, 0 for one that
	// came within the rate.
	Waited func(time.Duration)
	// Opened and Closed hear of each registered tunnel, at its beginning and its
	// end; why is the kind of the error that ended it.
	Opened func(c Carrier)
	Closed func(c Carrier, why protocol.Kind, lived time.Duration)
	// Socket hears of each WebSocket that was asked for.
	Socket func(outcome SocketOutcome)
	// Objected hears what the guard ended a tunnel for, and Reset why a single
	// stream was ended; both are one of few names.
	Objected func(reason string)
	Reset    func(reason string)

	// Dialled hears at the agent's end how each attempt to connect by one
	// carrier ended, lost races (context.Canceled) too.
	Dialled func(c Carrier, err error, took time.Duration)
	// Climbed hears of each registration over QUIC that is to replace a tunnel
	// over WebSocket, and how long it took since QUIC was first seen to get
	// through: the second look, waiting for what passes, and the registration.
	Climbed func(err error, took time.Duration)
}

// A HandshakeOutcome says how a handshake ended at the relay: one of the
// constants, or else the label of the kind of a refusal.
type HandshakeOutcome string

const (
	HandshakeRegistered HandshakeOutcome = "registered"
	HandshakeAbandoned  HandshakeOutcome = "abandoned" // the agent left before its HELLO: it tried the path, or lost interest
	HandshakeTimeout    HandshakeOutcome = "timeout"   // no HELLO in time
	HandshakeBusy       HandshakeOutcome = "busy"      // refused: too many handshakes at once
	HandshakeRate       HandshakeOutcome = "rate"      // refused: too many registrations lately
)

// HandshakeOutcomes returns all there can be.
func HandshakeOutcomes() []HandshakeOutcome {
	all := []HandshakeOutcome{
		HandshakeRegistered, HandshakeAbandoned, HandshakeTimeout, HandshakeBusy, HandshakeRate,
	}
	for _, row := range protocol.Kinds {
		if o := HandshakeOutcome(row.Label); !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

// A SocketOutcome says what became of a WebSocket that was asked for.
type SocketOutcome string

const (
	SocketFirst  SocketOutcome = "first"  // it began a connection
	SocketLane   SocketOutcome = "lane"   // it joined a tunnel
	SocketOrigin SocketOutcome = "origin" // refused: it came from a browser
	SocketSecret SocketOutcome = "secret" // refused: no tunnel has that lane secret
	SocketMany   SocketOutcome = "many"   // refused: the tunnel has enough, or too many wait
	SocketBroken SocketOutcome = "broken" // refused: not a WebSocket of ours
)

// SocketOutcomes returns all there can be.
func SocketOutcomes() []SocketOutcome {
	return []SocketOutcome{SocketFirst, SocketLane, SocketOrigin, SocketSecret, SocketMany, SocketBroken}
}

func (e *Events) handshake(c Carrier, outcome HandshakeOutcome, took time.Duration) {
	if e.Handshake != nil {
		e.Handshake(c, outcome, took)
	}
}

func (e *Events) waited(d time.Duration) {
	if e.Waited != nil {
		e.Waited(d)
	}
}

func (e *Events) opened(c Carrier) {
	if e.Opened != nil {
		e.Opened(c)
	}
}

func (e *Events) closed(c Carrier, why protocol.Kind, lived time.Duration) {
	if e.Closed != nil {
		e.Closed(c, why, lived)
	}
}

func (e *Events) socket(outcome wsslink.Outcome) {
	if e.Socket != nil {
		e.Socket(SocketOutcome(outcome))
	}
}

func (e *Events) objected(reason string) {
	if e.Objected != nil {
		e.Objected(reason)
	}
}

func (e *Events) reset(reason string) {
	if e.Reset != nil {
		e.Reset(reason)
	}
}
