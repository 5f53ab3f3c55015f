//go:build !otel

package telemetry

import (
	"context"
	"log/slog"
)

// Init begins to export spans as the OTEL_* variables say, to nowhere if they
// name no endpoint. stop sends what is left and returns within 2 s. Without the
// tag otel, Init does nothing.
func Init(context.Context, string, string, *slog.Logger) (stop func(), err error) {
	return func() {}, nil
}

// A Span is a piece of work on the way of a command. The zero Span is one that
// nobody records.
type Span struct{}

// Start begins a span of work in this program: as part of the one in ctx, or
// where a traceparent was extracted into ctx, of that one.
func Start(ctx context.Context, _ string, _ ...Attribute) (context.Context, Span) {
	return ctx, Span{}
}

// Serve begins the span of a request of somebody else.
func Serve(ctx context.Context, _ string, _ ...Attribute) (context.Context, Span) {
	return ctx, Span{}
}

// Call begins the span of a request to another program, which continues it by
// what [Inject] returns for the new ctx.
func Call(ctx context.Context, _ string, _ ...Attribute) (context.Context, Span) {
	return ctx, Span{}
}

// Set adds attributes.
func (Span) Set(...Attribute) {}

// Recording reports whether somebody will see the span.
func (Span) Recording() bool { return false }

// End ends the span, with the kind of err as its outcome.
func (Span) End(error) {}

type traceparentKey struct{}

// Extract returns ctx with the span that traceparent names as the parent of the
// next one. What is no traceparent is ignored.
func Extract(ctx context.Context, traceparent string) context.Context {
	if known, valid := parse(traceparent); valid {
		return context.WithValue(ctx, traceparentKey{}, known)
	}
	return ctx
}

// Inject returns the traceparent of ctx, for whoever does the next piece of
// work; "" if there is none.
func Inject(ctx context.Context) string {
	traceparent, _ := ctx.Value(traceparentKey{}).(string)
	return traceparent
}
