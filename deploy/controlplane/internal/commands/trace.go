package commands

import (
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
