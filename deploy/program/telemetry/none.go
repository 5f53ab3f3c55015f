//go:build !otel

package telemetry

import (
	"context"
	"log/slog"
)

// Init starts exporting spans as the OTEL_* variables say, or does nothing if
// they name no endpoint. stop sends the rest and returns within 2 s. Without
// the build tag otel, Init does nothing.
func Init(context.Context, string, string, *slog.Logger) (stop func(), err error) {
	return func() {}, nil
}

// A Span is a step in a command's processing. The zero Span is not recorded.
type Span struct{}

// Start begins a span of work in this program: a child of the one in ctx, or of
// the extracted traceparent in ctx.
func Start(ctx context.Context, _ string, _ ...Attribute) (context.Context, Span) {
	return ctx, Span{}
}

// Serve begins the span of a request from another program.
func Serve(ctx context.Context, _ string, _ ...Attribute) (context.Context, Span) {
	return ctx, Span{}
}

// Call begins the span of a request to another program, which continues it with
// the traceparent that [Inject] returns for the new ctx.
func Call(ctx context.Context, _ string, _ ...Attribute) (context.Context, Span) {
	return ctx, Span{}
}

// Set adds attributes.
func (Span) Set(...Attribute) {}

// Recording reports whether the span is exported.
func (Span) Recording() bool { return false }

// End ends the span, with the kind of err as its outcome.
func (Span) End(error) {}

type traceparentKey struct{}

// Extract returns ctx with the span that traceparent names as the parent of the
// next one. It ignores an invalid traceparent.
func Extract(ctx context.Context, traceparent string) context.Context {
	if known, valid := parse(traceparent); valid {
		return context.WithValue(ctx, traceparentKey{}, known)
	}
	return ctx
}

// Inject returns the traceparent of ctx for the next program; "" if there is
// none.
func Inject(ctx context.Context) string {
	traceparent, _ := ctx.Value(traceparentKey{}).(string)
	return traceparent
}
