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

// scope is the instrumentation scope of the spans.
const scope = "github.com/fairlead/fairlead"

// A Span is a step in a command's processing. The zero Span is not recorded.
type Span struct{ span trace.Span }

// Start begins a span of work in this program: a child of the one in ctx, or of
// the extracted traceparent in ctx.
func Start(ctx context.Context, name string, attributes ...Attribute) (context.Context, Span) {
	if trace.SpanContextFromContext(ctx).IsRemote() {
		return Serve(ctx, name, attributes...)
	}
	return start(ctx, trace.SpanKindInternal, name, attributes)
}

// Serve begins the span of a request from another program.
func Serve(ctx context.Context, name string, attributes ...Attribute) (context.Context, Span) {
	return start(ctx, trace.SpanKindServer, name, attributes)
}

// Call begins the span of a request to another program, which continues it with
// the traceparent that [Inject] returns for the new ctx.
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

// Recording reports whether the span is exported.
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
// next one. It ignores an invalid traceparent.
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

// Inject returns the traceparent of ctx for the next program; "" if there is
// none.
func Inject(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return join(span.TraceID().String(), span.SpanID().String(), byte(span.TraceFlags()))
}
