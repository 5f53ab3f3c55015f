// Package telemetry traces a command through all programs: each reports its
// steps as spans of one OpenTelemetry trace.
//
// Only programs built with the tag otel contain OpenTelemetry and make spans.
// All others forward the trace context, so that the programs after them stay in
// the same trace.
//
// A span has an operation, an outcome and a duration. An [Attribute] can hold
// nothing else: no ids of people, sandboxes or commands, and no content of a
// command.
//
// Between programs a trace context is a traceparent (W3C Trace Context): a
// header of HTTP requests and a member of OPEN in the tunnel, but never signed.
// It is a hint; nothing depends on it.
package telemetry

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Header carries a traceparent in HTTP requests.
const Header = "Traceparent"

// An Attribute is a property of a span.
type Attribute struct{ key, value string }

const (
	operationKey = "fairlead.operation"
	outcomeKey   = "fairlead.outcome"
	relayKey     = "fairlead.relay"

	// other stands for unknown values.
	other = "other"
	// ok is the outcome of success; others are labels of a Kind.
	ok = "ok"
)

// Operation names a command's operation, "other" if the protocol doesn't have
// it.
func Operation(kind string) Attribute {
	if _, known := op.Lookup(kind); !known {
		kind = other
	}
	return Attribute{operationKey, kind}
}

// Relay names the relay to which a command is sent.
func Relay(id protocol.RelayID) Attribute {
	if !protocol.ValidID(id) {
		id = other
	}
	return Attribute{relayKey, string(id)}
}

// outcome returns an error's kind, without its text.
func outcome(err error) Attribute {
	if err == nil {
		return Attribute{outcomeKey, ok}
	}
	return Attribute{outcomeKey, protocol.KindOf(err).String()}
}
