package extension_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A fakeRelay speaks to the panel as a relay does that lists the extension. Its
// terminal echoes; its chat says what the test wants.
type fakeRelay struct {
	*httptest.Server
	origin string // of the extension

	mu       sync.Mutex
	changed  chan struct{} // closed when something happens
	down     bool          // answers nothing
	full     bool          // the chat's queue
	absent   bool          // there is no claude
	minted   int
	gone     bool // the terminal, when its panel comes back
	sockets  map[*websocket.Conn]bool
	output   []byte // of the terminal, for who comes back
	started  int
	heard    []string // text frames of the terminal
	typed    string
	entries  []map[string]any
	active   int
	working  string // agentStatus
	followed int    // how often
	streams  int    // now
	commands []map[string]any
	switched []int
	answers  []map[string]any
	over     bool     // the token
	link     string   // behind the # of the page that is the console's
	asked    []string // method and path with query, of all requests
	faults   []string
}

func newFakeRelay(t testing.TB, id string) *fakeRelay {
	f := &fakeRelay{
		origin: "chrome-extension://" + id, changed: make(chan struct{}), sockets: make(map[*websocket.Conn]bool),
		working: "idle", active: 1,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /auth/me", func(w http.ResponseWriter, r *http.Request) {
		if f.isOver() || r.Header.Get("Authorization") != "Bearer ut_alice" {
			fail(w, 401, "not authenticated")
			return
		}
		answer(w, map[string]any{"user": map[string]any{"id": "usr_alice", "name": "alice"}, "sessions": []any{
			map[string]any{"id": "ses_1", "dashboard": "demo", "sandbox": "sb_1", "capabilities": []string{"view", "control", "shell", "chat", "approve"}},
		}})
	})
	mux.HandleFunc("POST /grants", func(w http.ResponseWriter, r *http.Request) {
		if f.isOver() {
			fail(w, 401, "not authenticated")
			return
		}
		answer(w, map[string]any{"grant": "grant_1", "expires_at": time.Now().Add(10 * time.Minute)})
	})
	mux.HandleFunc("GET /welcome", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>Welcome</title><p class="arrow">→</p><script>
			document.addEventListener('gstack-extension-ready', () => document.querySelector('.arrow').hidden = true)</script>`)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>Console</title><script>fetch('/link', {method: 'POST', body: location.hash})</script>`)
	})
	mux.HandleFunc("POST /link", func(w http.ResponseWriter, r *http.Request) {
		hash, _ := io.ReadAll(r.Body)
		f.do(func() { f.link = string(hash) })
	})
	mux.HandleFunc("POST /pty-session", f.granted(f.mint))
	mux.HandleFunc("POST /pty-session/reattach", f.granted(f.reattach))
	mux.HandleFunc("GET /claude-available", func(w http.ResponseWriter, r *http.Request) {
		f.do(func() { answer(w, map[string]any{"available": !f.absent}) })
	})
	mux.HandleFunc("GET /ws", f.socket)
	mux.HandleFunc("GET /sidebar-chat/stream", f.granted(f.stream))
	mux.HandleFunc("POST /sidebar-command", f.granted(f.command))
	mux.HandleFunc("GET /sidebar-tabs", f.granted(f.tabs))
	mux.HandleFunc("POST /sidebar-tabs/switch", f.granted(f.show))
	mux.HandleFunc("POST /sidebar-agent/answer", f.granted(f.answer))
	mux.HandleFunc("POST /sidebar-agent/stop", f.granted(func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		answer(w, map[string]any{"ok": true, "queuedMessages": 0})
		f.say(map[string]any{"role": "agent", "type": "agent_error", "error": "Stopped by user", "tabId": body["tabId"]})
	}))
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
		down := f.down
		f.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		// The relay refuses every other Origin than its own and the extension's.
		if origin := r.Header.Get("Origin"); origin != "" && origin != f.origin && r.URL.Path != "/link" {
			f.fault("%s %s came from %s", r.Method, r.URL.Path, origin)
		}
		if strings.Contains(r.URL.RequestURI(), "ut_") || strings.Contains(r.URL.RequestURI(), "grant_") {
			f.fault("a credential stands in %s", r.URL.RequestURI())
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.drop()
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value)
}

func fail(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": reason})
}

func (f *fakeRelay) fault(format string, args ...any) {
	f.do(func() { f.faults = append(f.faults, fmt.Sprintf(format, args...)) })
}

// do runs what changes something, and tells who waits for it.
func (f *fakeRelay) do(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
	close(f.changed)
	f.changed = make(chan struct{})
}

// granted admits who shows the grant.
func (f *fakeRelay) granted(next func(http.ResponseWriter, *http.Request, map[string]any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if f.isOver() {
			fail(w, 401, "not authenticated")
			return
		}
		if r.Header.Get("Authorization") != "Bearer grant_1" {
			f.fault("%s came with %q", r.URL.Path, r.Header.Get("Authorization"))
			fail(w, 401, "not authenticated")
			return
		}
		var body map[string]any
		json.NewDecoder(r.Body).Decode(&body)
		next(w, r, body)
	}
}

// isOver reports whether the token is good for nothing any more.
func (f *fakeRelay) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

func (f *fakeRelay) mint(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	if body != nil {
		f.fault("POST /pty-session has a body")
	}
	f.do(func() {
		f.minted++
		f.output = nil
		answer(w, map[string]any{"terminalPort": 1, "sessionId": "pts_" + strconv.Itoa(f.minted), "attachToken": "at_" + strconv.Itoa(f.minted)})
	})
}

func (f *fakeRelay) reattach(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	f.do(func() {
		if f.gone || body["sessionId"] != "pts_"+strconv.Itoa(f.minted) {
			fail(w, http.StatusGone, "gone")
			return
		}
		answer(w, map[string]any{"sessionId": body["sessionId"], "attachToken": "back_" + strconv.Itoa(f.minted)})
	})
}

// socket is the terminal: it starts at start, and echoes.
func (f *fakeRelay) socket(w http.ResponseWriter, r *http.Request) {
	_, token, _ := strings.Cut(r.Header.Get("Sec-WebSocket-Protocol"), "gstack-pty.")
	if r.Header.Get("Origin") != f.origin || r.Header.Get("Authorization") != "" || token == "" {
		f.fault("a socket of %q with %q", r.Header.Get("Origin"), token)
		fail(w, 403, "forbidden origin")
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: []string{"gstack-pty." + token}})
	if err != nil {
		return
	}
	f.do(func() { f.sockets[conn] = true })
	defer f.do(func() { delete(f.sockets, conn) })
	if strings.HasPrefix(token, "back_") {
		conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"reattach-begin"}`))
		f.mu.Lock()
		output := f.output
		f.mu.Unlock()
		conn.Write(r.Context(), websocket.MessageBinary, output)
	}
	for {
		kind, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if kind == websocket.MessageText {
			f.do(func() { f.heard = append(f.heard, string(data)) })
			if strings.Contains(string(data), `"start"`) {
				f.do(func() { f.started++ })
				f.print("\x1b[1mWelcome to Claude Code\x1b[0m\r\n\r\n> ")
			}
			continue
		}
		f.do(func() { f.typed += string(data) })
		f.print(strings.ReplaceAll(string(data), "\r", "\r\n> "))
	}
}

func (f *fakeRelay) print(text string) {
	f.do(func() {
		f.output = append(f.output, text...)
		for conn := range f.sockets {
			conn.Write(context.Background(), websocket.MessageBinary, []byte(text))
		}
	})
}

// drop ends the terminal's sockets without a word.
func (f *fakeRelay) drop() {
	f.do(func() {
		for conn := range f.sockets {
			conn.CloseNow()
		}
	})
}

func (f *fakeRelay) stream(w http.ResponseWriter, r *http.Request, _ map[string]any) {
	next, err := strconv.Atoi(r.URL.Query().Get("after"))
	if err != nil {
		f.fault("after is %q", r.URL.Query().Get("after"))
	}
	w.Header().Set("Content-Type", "text/event-stream")
	f.do(func() { f.followed++; f.streams++ })
	defer f.do(func() { f.streams-- })
	told := ""
	for {
		f.mu.Lock()
		changed, down := f.changed, f.down
		entries := f.entries[min(next, len(f.entries)):]
		next = max(next, len(f.entries))
		state, _ := json.Marshal(map[string]any{"total": len(f.entries), "agentStatus": f.working, "activeTabId": f.active})
		f.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		for _, entry := range entries {
			data, _ := json.Marshal(entry)
			fmt.Fprintf(w, "event: entry\ndata: %s\n\n", data)
		}
		if f.isOver() { // a stream ends with its grant
			return
		}
		if string(state) != told {
			told = string(state)
			fmt.Fprintf(w, "event: state\ndata: %s\n\n", state)
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// say adds entries to the chat.
func (f *fakeRelay) say(entries ...map[string]any) {
	f.do(func() {
		for _, entry := range entries {
			entry["id"], entry["ts"] = len(f.entries), "2026-03-14T09:26:53.589Z"
			f.entries = append(f.entries, entry)
			switch entry["type"] {
			case "agent_start":
				f.working = "processing"
			case "agent_done", "agent_error":
				f.working = "idle"
			}
		}
	})
}

func (f *fakeRelay) command(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	f.mu.Lock()
	full, tab := f.full, f.active
	f.mu.Unlock()
	if id, named := body["tabId"].(float64); named {
		tab = int(id)
	}
	f.do(func() { f.commands = append(f.commands, body) })
	if full {
		fail(w, http.StatusTooManyRequests, "Queue full (max 5)")
		return
	}
	answer(w, map[string]any{"ok": true, "processing": true})
	f.say(map[string]any{"role": "user", "message": body["message"], "tabId": tab}, map[string]any{"role": "agent", "type": "agent_start", "tabId": tab})
}

func (f *fakeRelay) tabs(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
	f.do(func() {
		list := []any{}
		for id, title := range map[int]string{1: "Hacker News", 2: "Shop <b>of</b> things"} {
			list = append(list, map[string]any{"id": id, "url": "https://" + strconv.Itoa(id) + ".example/", "title": title, "active": id == f.active, "conversationId": "conv_" + strconv.Itoa(id)})
		}
		if list[0].(map[string]any)["id"] != 1 {
			list[0], list[1] = list[1], list[0]
		}
		answer(w, map[string]any{"tabs": list})
	})
}

func (f *fakeRelay) show(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	id, _ := body["id"].(float64)
	f.do(func() { f.active = int(id); f.switched = append(f.switched, int(id)) })
	answer(w, map[string]any{"ok": true, "activeTab": id})
}

// answer takes an answer to a question.
func (f *fakeRelay) answer(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	f.do(func() { f.answers = append(f.answers, body) })
	outcome := "denied"
	if body["allow"] == true {
		outcome = "allowed"
	}
	f.say(map[string]any{"role": "agent", "type": "answered", "requestId": body["requestId"], "outcome": outcome, "by": "usr_alice", "tabId": body["tabId"]})
	answer(w, map[string]any{"ok": true, "applied": true, "outcome": outcome})
}

// until waits for something to be so.
func (f *fakeRelay) until(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx := patience(t)
	for {
		f.mu.Lock()
		done, changed := so(), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("never: %s; asked was, at last, %q, %v", what, f.asked[max(0, len(f.asked)-30):], f.commands)
		}
	}
}

// check fails the test for what the panel should never do.
func (f *fakeRelay) check(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.faults {
		t.Error(fault)
	}
}
