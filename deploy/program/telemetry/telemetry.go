// Package telemetry follows a command through all programs: each tells what it
// did of it in spans of one OpenTelemetry trace.
//
// Only programs built with the tag otel make spans, and contain OpenTelemetry at
// all. All others pass the trace context on, so that those after them still
// belong to the same trace.
//
// A span says which operation, how it ended and how long it took. An [Attribute]
// can hold nothing else: no ids of people, sandboxes or commands, and nothing of
// what a command says.
//
// Between programs a trace context is a traceparent (W3C Trace Context): a header
// of HTTP requests, a member of OPEN in the tunnel, never a part of what is
// signed. It is a hint; nothing depends on it.
package telemetry

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Header carries a traceparent in HTTP requests.
const Header = "Traceparent"

// An Attribute is something that a span says.
type Attribute struct{ key, value string }

const (
	operationKey = "fairlead.operation"
	outcomeKey   = "fairlead.outcome"
	relayKey     = "fairlead.relay"

	// other stands for values that aren't known here.
	other = "other"
	// ok is the outcome of what succeeded; others are labels of a Kind.
	ok = "ok"
)

// Operation names what a command does: one of the protocol's operations, "other"
// if it isn't.
func Operation(kind string) Attribute {
	if _, known := op.Lookup(kind); !known {
		kind = other
	}
	return Attribute{operationKey, kind}
}

// Relay names the relay that a command is sent to.
func Relay(id protocol.RelayID) Attribute {
	if !protocol.ValidID(id) {
		id = other
	}
	return Attribute{relayKey, string(id)}
}

// outcome says how something ended: of an error its kind, and not its text.
func outcome(err error) Attribute {
	if err == nil {
		return Attribute{outcomeKey, ok}
	}
	return Attribute{outcomeKey, protocol.KindOf(err).String()}
}
