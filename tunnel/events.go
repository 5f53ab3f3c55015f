package tunnel

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

// Events are callbacks that count what tunnels do. Each may be nil; none may
// block, and each may be called from several goroutines at once.
type Events struct {
	// Handshake gets the outcome and duration of each registration handshake.
	// Connections of unregistered agents go to [ListenConfig.Connected] instead.
	Handshake func(c Carrier, outcome HandshakeOutcome, took time.Duration)
	// Waited gets how long a registration waited for its turn, 0 if it came within
	// the rate.
	Waited func(time.Duration)
	// Opened and Closed are called at the beginning and end of each registered
	// tunnel; why is the kind of the error that ended it.
	Opened func(c Carrier)
	Closed func(c Carrier, why protocol.Kind, lived time.Duration)
	// Socket is called for each requested WebSocket.
	Socket func(outcome SocketOutcome)
	// Objected gets the reason why the guard ended a tunnel, and Reset why a
	// single stream was ended; both are of few names.
	Objected func(reason string)
	Reset    func(reason string)

	// Dialled, at the agent, gets the result of each dial by one carrier, lost
	// races (context.Canceled) too.
	Dialled func(c Carrier, err error, took time.Duration)
	// Climbed gets the result of each registration over QUIC that replaces a
	// tunnel over WebSocket. took begins when QUIC first got through: it includes
	// the second probe, the wait for streams, and the registration.
	Climbed func(err error, took time.Duration)
}

// A HandshakeOutcome is a handshake's outcome at the relay: one of the
// constants, or the label of a refusal's kind.
type HandshakeOutcome string

const (
	HandshakeRegistered HandshakeOutcome = "registered"
	HandshakeAbandoned  HandshakeOutcome = "abandoned" // the agent left before its HELLO: it tried the path, or lost interest
	HandshakeTimeout    HandshakeOutcome = "timeout"   // no HELLO in time
	HandshakeBusy       HandshakeOutcome = "busy"      // refused: too many handshakes at once
	HandshakeRate       HandshakeOutcome = "rate"      // refused: over the rate of registrations
)

// HandshakeOutcomes returns all outcomes.
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

// A SocketOutcome is the outcome of a request for a WebSocket.
type SocketOutcome string

const (
	SocketFirst  SocketOutcome = "first"  // first of a connection
	SocketLane   SocketOutcome = "lane"   // joined a tunnel
	SocketBeside SocketOutcome = "beside" // joined a tunnel over QUIC
	SocketOrigin SocketOutcome = "origin" // refused: it came from a browser
	SocketSecret SocketOutcome = "secret" // refused: no tunnel has that lane secret
	SocketMany   SocketOutcome = "many"   // refused: the tunnel has enough, or too many wait
	SocketBroken SocketOutcome = "broken" // refused: not a WebSocket of ours
)

// SocketOutcomes returns all outcomes.
func SocketOutcomes() []SocketOutcome {
	return []SocketOutcome{SocketFirst, SocketLane, SocketBeside, SocketOrigin, SocketSecret, SocketMany, SocketBroken}
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
