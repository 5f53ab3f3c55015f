package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	w.known.forget(pty1)
	if status, _ := w.ask(t, id, listTools); status != 403 {
		t.Errorf("a terminal without a secret: %d", status)
	}
	w.sweep(time.Now())
	if n := known(); n != 0 || w.openSessions() != 0 {
		t.Errorf("%d terminals are known, %v sessions open", n, w.openSessions())
	}
}

// Terminals that a person makes up are not kept, and however many people there
// are, a terminal's programs are let in.
func TestMadeUpTerminals(t *testing.T) {
	w := newWorld(t)
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	ask := func(p protocol.PTYID) int {
		path := "/relay/sessions/ses_1/mcp/tools?pty_id=" + string(p)
		status, _, _ := w.do(t, request{method: "GET", path: path, header: map[string]string{"X-Test-Grant": "ann"}})
		return status
	}
	for _, p := range []protocol.PTYID{"pty_8", "pty_9"} {
		if status := ask(p); status != http.StatusNotFound {
			t.Errorf("a terminal that is none: %d", status)
		}
	}
	w.Server.mu.Lock()
	if n := len(w.owners); n != 0 {
		t.Errorf("%d callers are kept", n)
	}
	for i := range maxOwners {
		w.newOwner(ownerKey{session: sessionID, user: protocol.UserID(fmt.Sprint("usr_", i))})
	}
	w.Server.mu.Unlock()
	if status := ask(pty1); status != http.StatusTooManyRequests {
		t.Errorf("one person too many: %d", status)
	}
	if status, _, _ := w.do(t, request{method: "GET", path: toolsPath}); status != http.StatusOK {
		t.Errorf("a terminal's program among so many people: %d", status)
	}
}

// A client that reads nothing before it has sent everything is told that it is
// too much: its body is read, up to a point.
func TestTooLargeIsTold(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		length, known int64
		expect        string
		least, most   int64 // that is read
	}{
		"of a known length":   {length: 5 << 20, known: 5 << 20, least: 5 << 20, most: 5 << 20},
		"of none":             {length: 5 << 20, known: -1, least: 5 << 20, most: 5 << 20},
		"far too large":       {length: 1 << 30, known: 1 << 30, least: maxDiscarded, most: maxDiscarded + 1<<20},
		"of who waits for us": {length: 5 << 20, known: 5 << 20, expect: "100-continue"},
	} {
		body := &io.LimitedReader{R: endless{}, N: tt.length}
		r := httptest.NewRequest("POST", w.url+callPath, body)
		r.ContentLength = tt.known
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(secret, "secret-of-1")
		if tt.expect != "" {
			r.Header.Set("Expect", tt.expect)
		}
		answer := httptest.NewRecorder()
		w.Loopback().ServeHTTP(answer, r)
		if read := tt.length - body.N; answer.Code != http.StatusRequestEntityTooLarge || read < tt.least || read > tt.most {
			t.Errorf("%s: %d %s, %d bytes are read", name, answer.Code, answer.Body, read)
		}
	}
}

// endless reads as text without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Connections beyond the limit are closed, and make room when they are.
func TestBounded(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := w.bounded(l).(*boundedListener)
	defer bounded.Close()
	bounded.open.Store(maxConns - 1)
	accepted := make(chan net.Conn, 1)
	go func() { // ends with the listener
		for {
			conn, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	dial()
	first := await(t, accepted, "connection")
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("one too many is served")
	}
	first.Close()
	first.Close()
	if n := bounded.open.Load(); n != maxConns-1 {
		t.Errorf("%d connections are counted", n)
	}
	dial()
	await(t, accepted, "connection after one was closed").Close()
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
