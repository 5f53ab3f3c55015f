//go:build otel

package telemetry

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A collector takes spans over OTLP/HTTP.
type collector struct {
	mu sync.Mutex
	// Guarded by mu.
	resources []*tracev1.ResourceSpans
	tokens    []string // of the requests
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var traces tracev1.TracesData // looks like a request to export on the wire
	if err == nil {
		err = proto.Unmarshal(data, &traces)
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources = append(c.resources, traces.ResourceSpans...)
	c.tokens = append(c.tokens, r.Header.Get("X-Token"))
}

// export makes Init send spans to h, and returns what stops it, and the log.
func export(t *testing.T, h http.Handler) (stop func(), logged *bytes.Buffer) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
	logged = &bytes.Buffer{}
	stop, err := Init(t.Context(), "fairlead-test", "rev1", slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		otel.SetTracerProvider(noop.NewTracerProvider())
		server.CloseClientConnections()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
		if strings.Contains(logged.String(), "secret") {
			t.Errorf("logged: %s", logged)
		}
	})
	return stop, logged
}

func TestSpansArrive(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("exported", testSpansArrive)
}

func testSpansArrive(t *testing.T) {
	c := &collector{}
	stop, logged := export(t, c)
	ctx, served := Serve(Extract(t.Context(), someParent), "served", Operation(op.KindPTYCreate))
	work, within := Start(ctx, "within")
	called, call := Call(work, "called", Relay("rl_1"))
	carried := Inject(called)
	call.End(protocol.Errorf(protocol.KindTooMany, "words"))
	within.End(errors.New("words"))
	served.End(nil)
	_, elsewhere := Start(Extract(t.Context(), carried), "elsewhere")
	elsewhere.End(nil)
	stop()

	if len(c.resources) != 1 || len(c.resources[0].ScopeSpans) != 1 {
		t.Fatalf("%d resources arrived: %s", len(c.resources), logged)
	}
	of := map[string]string{}
	for _, a := range c.resources[0].Resource.Attributes {
		of[a.Key] = a.Value.GetStringValue()
	}
	if of["service.name"] != "fairlead-test" || of["service.version"] != "rev1" || c.tokens[0] != "secret" {
		t.Errorf("resource %v, token %q", of, c.tokens)
	}
	var got []string
	names := map[string]string{someSpan: "parent"}
	spans := c.resources[0].ScopeSpans[0].Spans
	for _, s := range spans {
		names[hex(s.SpanId)] = s.Name
	}
	for _, s := range spans {
		line := names[hex(s.ParentSpanId)] + " > " + s.Name + " " + strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"))
		for _, a := range s.Attributes {
			line += " " + strings.TrimPrefix(a.Key, "fairlead.") + "=" + a.Value.GetStringValue()
		}
		got = append(got, line)
		if hex(s.TraceId) != someTrace {
			t.Errorf("%s is in another trace", s.Name)
		}
		if s.Status.GetMessage() == "words" {
			t.Errorf("%s tells contents", s.Name)
		}
	}
	want := []string{
		"within > called client relay=rl_1 outcome=too_many",
		"served > within internal outcome=internal",
		"parent > served server operation=pty.create outcome=ok",
		"called > elsewhere server outcome=ok",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if logged.Len() > 0 {
		t.Errorf("logged: %s", logged)
	}
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var text []byte
	for _, c := range b {
		text = append(text, digits[c>>4], digits[c&15])
	}
	return string(text)
}

// A collector that answers nothing, or refuses, holds up nobody, and in the end
// is not waited for.
func TestCollectorsThatFail(t *testing.T) {
	const spans = 20_000 // ten times the queue
	for name, h := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // or the server doesn't notice that the client is gone
			<-r.Context().Done()
		},
		"refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
	} {
		t.Run(name, func(t *testing.T) {
			stop, logged := export(t, h)
			began := time.Now()
			for range spans {
				_, span := Start(t.Context(), "work")
				span.End(nil)
			}
			if took := time.Since(began); took > time.Minute { // one export may hang for 10 s, and there would be 40
				t.Errorf("%d spans took %v", spans, took)
			}
			began = time.Now()
			stop()
			if took := time.Since(began); took > stopTimeout+20*time.Second {
				t.Errorf("the end took %v", took)
			}
			if !strings.Contains(logged.String(), "lost=20000 of=20000") {
				t.Errorf("logged: %s", logged)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]string
		exports   bool
		err       string
	}{
		"none":                 {},
		"an endpoint":          {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, exports: true},
		"an endpoint of spans": {variables: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://127.0.0.1:1/v1/traces"}, exports: true},
		"disabled":             {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}},
		"exporter none":        {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}},
		"another exporter":     {variables: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, err: "want otlp or none"},
		"no scheme":            {variables: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT: want"},
		"another scheme":       {variables: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://secret@x"}, err: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: want"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			stop, err := Init(t.Context(), "fairlead-test", "rev1", slog.New(slog.DiscardHandler))
			t.Cleanup(func() { otel.SetTracerProvider(noop.NewTracerProvider()) })
			_, span := Start(t.Context(), "work")
			stop()
			if span.Recording() != c.exports {
				t.Errorf("exports is %v", !c.exports)
			}
			if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("Init = %v, want %q", err, c.err)
			}
		})
	}
}
