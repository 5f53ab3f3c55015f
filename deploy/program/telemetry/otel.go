//go:build otel

package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope names what the spans come from.
const scope = "github.com/fairlead/fairlead"

// A Span is a piece of work on the way of a command. The zero Span is one that
// nobody records.
type Span struct{ span trace.Span }

// Start begins a span of work in this program: as part of the one in ctx, or
// where a traceparent was extracted into ctx, of that one.
func Start(ctx context.Context, name string, attributes ...Attribute) (context.Context, Span) {
	if trace.SpanContextFromContext(ctx).IsRemote() {
		return Serve(ctx, name, attributes...)
	}
	return start(ctx, trace.SpanKindInternal, name, attributes)
}

// Serve begins the span of a request of somebody else.
func Serve(ctx context.Context, name string, attributes ...Attribute) (context.Context, Span) {
	return start(ctx, trace.SpanKindServer, name, attributes)
}

// Call begins the span of a request to another program, which continues it by
// what [Inject] returns for the new ctx.
func Call(ctx context.Context, name string, attributes ...Attribute) (context.Context, Span) {
	return start(ctx, trace.SpanKindClient, name, attributes)
}

func start(ctx context.Context, kind trace.SpanKind, name string, attributes []Attribute) (context.Context, Span) {
	ctx, span := otel.Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(time.Now()))
	s := Span{span}
	s.Set(attributes...)
	return ctx, s
}

// Set adds attributes.
func (s Span) Set(attributes ...Attribute) {
	if !s.Recording() {
		return
	}
	for _, a := range attributes {
		s.span.SetAttributes(attribute.String(a.key, a.value))
	}
}

// Recording reports whether somebody will see the span.
func (s Span) Recording() bool { return s.span != nil && s.span.IsRecording() }

// End ends the span, with the kind of err as its outcome.
func (s Span) End(err error) {
	if !s.Recording() {
		return
	}
	how := outcome(err)
	s.Set(how)
	if err != nil {
		s.span.SetStatus(codes.Error, how.value)
	}
	s.span.End()
}

// Extract returns ctx with the span that traceparent names as the parent of the
// next one. What is no traceparent is ignored.
func Extract(ctx context.Context, traceparent string) context.Context {
	known, valid := parse(traceparent)
	if !valid {
		return ctx
	}
	var parent trace.SpanContextConfig
	var errs [2]error
	parent.TraceID, errs[0] = trace.TraceIDFromHex(known[traceAt : spanAt-1])
	parent.SpanID, errs[1] = trace.SpanIDFromHex(known[spanAt : flagsAt-1])
	if errs != [2]error{} {
		return ctx
	}
	parent.TraceFlags = trace.TraceFlags(known[parentLen-1] - '0')
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(parent))
}

// Inject returns the traceparent of ctx, for whoever does the next piece of
// work; "" if there is none.
func Inject(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return join(span.TraceID().String(), span.SpanID().String(), byte(span.TraceFlags()))
}
