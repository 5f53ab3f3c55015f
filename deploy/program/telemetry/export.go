//go:build otel

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
)

const (
	// stopTimeout bounds how long an ending program waits for its last spans.
	stopTimeout = 2 * time.Second
	// complaintInterval is the time between two log lines about failed exports,
	// and maxComplaint bounds the error text in one, in bytes.
	complaintInterval = time.Minute
	maxComplaint      = 200
)

// Init starts exporting spans as the OTEL_* variables say, or does nothing if
// they name no endpoint. stop sends the rest and returns within 2 s. Spans wait
// in a queue of OTEL_BSP_MAX_QUEUE_SIZE (2048). When it is full, further ones
// are dropped, so that nothing waits for an export; the log says at the end how
// many were lost.
func Init(ctx context.Context, service, revision string, logger *slog.Logger) (stop func(), err error) {
	named, err := endpointNamed()
	if err != nil || !named {
		return func() {}, err
	}
	// The library's own messages quote variables, even those with secrets.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(&complaints{logger: logger, lines: rate.Sometimes{First: 1, Interval: complaintInterval}})
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return func() {}, errors.New("telemetry: no exporter can be made from the OTEL_ variables")
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last and win.
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", service), attribute.String("service.version", revision),
	), resource.WithFromEnv())
	if err != nil {
		return func() {}, fmt.Errorf("telemetry: %w", err)
	}
	counted := &counter{}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(of), sdktrace.WithSpanProcessor(counted),
		sdktrace.WithBatcher(counting{exporter, counted}))
	otel.SetTracerProvider(provider)
	return sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			otel.Handle(err)
		}
		if ended, sent := counted.ended.Load(), counted.sent.Load(); sent < ended {
			logger.Warn("spans lost", "lost", ended-sent, "of", ended)
		}
	}), nil
}

// endpointNamed reports whether spans are exported. The standard endpoint, this
// machine, isn't used by default: mostly nobody listens there.
func endpointNamed() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false, nil
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return false, errors.New("telemetry: OTEL_TRACES_EXPORTER: want otlp or none")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		u, err := url.Parse(value)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return false, fmt.Errorf("telemetry: %s: want http:// or https:// and a host", name)
		}
		return true, nil
	}
	return false, nil
}

// A counter counts ended and sent spans.
type counter struct{ ended, sent atomic.Int64 }

// counting is an exporter that counts sent spans.
type counting struct {
	sdktrace.SpanExporter
	counter *counter
}

func (c counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		c.counter.sent.Add(int64(len(spans)))
	}
	return err
}

// OnEnd and the other methods implement [sdktrace.SpanProcessor].
func (c *counter) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.ended.Add(1)
	}
}

func (*counter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*counter) ForceFlush(context.Context) error                { return nil }
func (*counter) Shutdown(context.Context) error                  { return nil }

// complaints logs export errors at a limited rate.
type complaints struct {
	logger *slog.Logger
	count  atomic.Int64
	lines  rate.Sometimes
}

// Handle implements [otel.ErrorHandler].
func (c *complaints) Handle(err error) {
	count := c.count.Add(1)
	text := err.Error()
	c.lines.Do(func() {
		c.logger.Warn("traces not exported", "err", text[:min(len(text), maxComplaint)], "count", count)
	})
}
