//go:build otel

package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// tags are what the programs are built with: they make spans.
var tags = []string{"-tags", "otel"}

// A traceCollector takes what programs export over OTLP/HTTP.
type traceCollector struct {
	mu sync.Mutex
	// Guarded by mu.
	spans map[string]seenSpan // by id
	raw   strings.Builder     // all requests
}

// A seenSpan is a span and the service that it is of.
type seenSpan struct {
	*tracev1.Span
	service string
}

func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var traces tracev1.TracesData // looks like a request to export on the wire
	if err == nil {
		err = proto.Unmarshal(data, &traces)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(data)
	for _, resource := range traces.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = strings.TrimPrefix(a.Value.GetStringValue(), "fairlead-")
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans[string(s.SpanId)] = seenSpan{s, service}
			}
		}
	}
}

// trace returns the spans of a trace as paths from its root, "service:name"
// each, sorted.
func (c *traceCollector) trace(id string) (paths []string, spans []seenSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if fmt.Sprintf("%x", s.TraceId) != id {
			continue
		}
		spans = append(spans, s)
		path := s.service + ":" + s.Name
		for at, ok := c.spans[string(s.ParentSpanId)]; ok; at, ok = c.spans[string(at.ParentSpanId)] {
			path = at.service + ":" + at.Name + " > " + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths, spans
}

// awaitTrace waits until a trace is as want says, which is sorted here.
func (c *traceCollector) awaitTrace(t *testing.T, id string, want []string) []seenSpan {
	t.Helper()
	slices.Sort(want)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		paths, spans := c.trace(id)
		if slices.Equal(paths, want) {
			return spans
		}
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("the trace is\n%s\nwant\n%s", strings.Join(paths, "\n"), strings.Join(want, "\n"))
		}
	}
}

// executed is what the relay and the agent do of a command, below the span that
// has it dispatched.
func executed(above string) []string {
	dispatch := above + " > relay:dispatch command"
	execute := dispatch + " > relay:send command > sandbox-agent:execute command"
	return []string{
		dispatch, dispatch + " > relay:send command", execute,
		execute + " > sandbox-agent:verify", execute + " > sandbox-agent:journal",
		execute + " > sandbox-agent:run", execute + " > sandbox-agent:result",
	}
}

// TestOneTraceForEachCommand: each way that a command takes is one trace through
// the control plane, the relay and the agent, which continues its caller's.
func TestOneTraceForEachCommand(t *testing.T) {
	c := &traceCollector{spans: map[string]seenSpan{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	s := own(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	const span = "b7ad6b7169203331"
	post := func(trace, url, bearer string, want int, body any) {
		t.Helper()
		status, answer, err := Call(ctx, http.MethodPost, url, bearer, body, "Traceparent", "00-"+trace+"-"+span+"-01")
		must(t, err)
		if status != want {
			t.Fatalf("POST %s: %d %s", url, status, answer)
		}
	}

	signed, rest := "5ed00000000000000000000000000001", "5ed00000000000000000000000000002"
	post(signed, alice.Base+"/commands", alice.Token, http.StatusOK, map[string]any{
		"target": map[string]any{"sessionId": s.Ready.SessionID}, "op": map[string]any{"kind": "pty.create", "command": "cat"},
	})
	post(rest, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, http.StatusCreated, map[string]any{"command": "cat"})

	const commands = "controlplane:POST /commands"
	spans := c.awaitTrace(t, signed, slices.Concat(
		[]string{commands, commands + " > controlplane:sign", commands + " > controlplane:offer"}, executed(commands+" > controlplane:offer")))
	const change = "relay:POST /sessions/{sid}/ptys"
	const ask = change + " > relay:ask for signature"
	spans = append(spans, c.awaitTrace(t, rest, slices.Concat(
		[]string{change, ask, ask + " > controlplane:POST /internal/sign", ask + " > controlplane:POST /internal/sign > controlplane:sign"},
		executed(change)))...)

	allowed := []string{"fairlead.operation", "fairlead.outcome", "fairlead.relay"}
	for _, s := range spans {
		said := map[string]string{}
		for _, a := range s.Attributes {
			said[a.Key] = a.Value.GetStringValue()
			if !slices.Contains(allowed, a.Key) {
				t.Errorf("%s says %s", s.Name, a.Key)
			}
		}
		if said["fairlead.outcome"] != "ok" || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s: %v, %d to %d", s.Name, slices.Collect(maps.Values(said)), s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range []string{string(alice.ID), string(s.Ready.SessionID), string(s.Ready.Sandboxes[0].ID), alice.Token, "cmd_"} {
		if strings.Contains(c.raw.String(), id) {
			t.Errorf("a span has %q in it", id)
		}
	}
}
