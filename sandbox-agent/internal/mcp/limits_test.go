package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// A caller has so many requests under way, and fewer large ones; another has
// his own.
func TestRequestLimits(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		most       int
	}{
		{"small", `{"name":"hang"}`, MaxRequestsPerCaller},
		{"large", `{"name":"hang","arguments":{"big":"` + strings.Repeat("x", smallBody) + `"}}`, maxLargePerCaller},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			began := make(chan bool)
			w.shelf.tools = append(w.shelf.tools, tool("hang", `"big":{}`, func(ctx context.Context, _ toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
				began <- true
				<-ctx.Done()
				return toolbox.Text("ended"), nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			over := make(chan error, tt.most)
			for range tt.most {
				go func() { // ends with ctx
					r, err := http.NewRequestWithContext(ctx, "POST", w.url+callPath, strings.NewReader(tt.body))
					if err == nil {
						r.Header.Set("Content-Type", "application/json")
						r.Header.Set(secret, "secret-of-1")
						_, err = http.DefaultClient.Do(r)
					}
					over <- err
				}()
				await(t, began, "call")
			}
			status, answer, _ := w.do(t, request{method: "POST", path: callPath, body: tt.body})
			if status != http.StatusTooManyRequests {
				t.Errorf("one too many: %d %s", status, answer)
			}
			if n := testutil.ToFloat64(w.metrics.refused.WithLabelValues(refusedLimit)); n != 1 {
				t.Errorf("%v refusals are counted", n)
			}
			status, _, _ = w.do(t, request{method: "GET", path: "/sessions/ses_1/mcp/tools?pty_id=pty_2", header: map[string]string{secret: "secret-of-2"}})
			if status != 200 {
				t.Errorf("another caller: %d", status)
			}
			cancel()
			for range tt.most {
				if err := await(t, over, "end of a call"); err == nil {
					t.Error("a call was answered")
				}
			}
			eventually(t, "place for further requests", func() bool {
				w.Server.mu.Lock()
				defer w.Server.mu.Unlock()
				o := w.owners[ownerKey{session: sessionID, pty: pty1}]
				return o.requests == 0 && o.large == 0 && w.large == 0
			})
		})
	}
}

// Nothing is kept of terminals that nobody knows.
func TestUnknownTerminals(t *testing.T) {
	w := newWorld(t)
	w.Changed(sessionID, "pty_gone")
	id := w.begin(t)
	known := func() int {
		w.Server.mu.Lock()
		defer w.Server.mu.Unlock()
		return len(w.owners)
	}
	if n := known(); n != 1 {
		t.Errorf("%d terminals are known", n)
	}
	w.sweep(time.Now())
	if status, _ := w.ask(t, id, listTools); status != 200 {
		t.Errorf("a terminal that is there: %d", status)
	}
	w.mu.Lock()
	delete(w.secrets, pty1)
	w.mu.Unlock()
	if status, _ := w.ask(t, id, listTools); status != 403 {
		t.Errorf("a terminal without a secret: %d", status)
	}
	w.sweep(time.Now())
	if n := known(); n != 0 || w.openSessions() != 0 {
		t.Errorf("%d terminals are known, %v sessions open", n, w.openSessions())
	}
}

// After Close nothing is answered, and nothing waits.
func TestClose(t *testing.T) {
	w := newWorld(t)
	id := w.begin(t)
	events := w.open(t, "GET", "", map[string]string{sessionHeader: id})
	w.Close()
	events.ended(t)
	if status, _ := w.ask(t, id, listTools); status != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d", status)
	}
	w.Changed(sessionID, pty1)
	w.Ended(sessionID, "")
	w.Close()
}

// All of the clients that a caller may have are told.
func TestManyAreTold(t *testing.T) {
	w := newWorld(t)
	var streams []*stream
	for range MaxSessionsPerCaller {
		id := w.begin(t)
		w.ask(t, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		streams = append(streams, w.open(t, "GET", "", map[string]string{sessionHeader: id}))
	}
	w.shelf.put(pty1, tool("more", "", echo))
	start := time.Now()
	w.Changed(sessionID, "")
	for _, s := range streams {
		s.until(t, "list_changed")
	}
	t.Logf("told after %s", time.Since(start))
	for _, s := range streams {
		s.cancel()
	}
}
