package controlplane

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
)

// traced begins the span of a request whose caller is known: nobody else can make
// spans here. Its name is the route's.
func traced(r *http.Request) (*http.Request, telemetry.Span) {
	ctx, span := telemetry.Serve(telemetry.Extract(r.Context(), r.Header.Get(telemetry.Header)), r.Pattern)
	return r.WithContext(ctx), span
}

// passOn puts the span of ctx into the header of a request to a relay.
func passOn(ctx context.Context, header http.Header) {
	if traceparent := telemetry.Inject(ctx); traceparent != "" {
		header.Set(telemetry.Header, traceparent)
	}
}

// failureOf returns why a command has no result that is known, nil when it has
// one.
func failureOf(o store.Outcome) error {
	switch {
	case o.Status == protocol.StatusOK:
		return nil
	case o.Error == nil:
		return protocol.Fault(protocol.KindUnavailable, nil)
	}
	return protocol.Fault(protocol.KindByName(o.Error.Name), nil)
}

// failure returns why an offer had no answer, nil if it had one.
func (d delivery) failure() error {
	switch d {
	case answered:
		return nil
	case refused:
		return protocol.Fault(protocol.KindForbidden, nil)
	case elsewhere:
		return protocol.Fault(protocol.KindUnavailable, nil)
	}
	return protocol.Fault(protocol.KindUpstream, nil)
}
