package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

const conversation = protocol.ConversationID("2b3c")

// A chatRelay answers as a relay does: each socket brings the events behind the
// mark that it subscribes with, and then ends.
type chatRelay struct {
	t      *testing.T
	server *httptest.Server
	each   int           // events of one socket
	open   chan struct{} // each socket waits for it, twice; nil: it waits for nothing
	heard  chan string   // types of what clients have sent

	mu   sync.Mutex
	said []map[string]any // guarded by mu: what clients have sent
}

func newChatRelay(t *testing.T, each int) *chatRelay {
	r := &chatRelay{t: t, each: each, heard: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /grants", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"grant":"g"}`) })
	mux.HandleFunc("POST /chat-session", func(w http.ResponseWriter, req *http.Request) {
		if r.open != nil {
			for range 2 {
				select {
				case <-r.open:
				case <-req.Context().Done():
				}
			}
		}
		fmt.Fprintf(w, `{"ws_url":"ws%s/ws","ticket":"t1"}`, strings.TrimPrefix(r.server.URL, "http"))
	})
	mux.HandleFunc("GET /ws", r.socket)
	r.server = httptest.NewServer(mux)
	t.Cleanup(r.server.Close)
	return r
}

func (r *chatRelay) socket(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Sec-Websocket-Protocol") != "ticket.t1" || req.Header.Get("Origin") != r.server.URL {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	conn, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: []string{"ticket.t1"}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		_, data, err := conn.Read(req.Context())
		if err != nil {
			return
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			r.t.Error(err)
		}
		r.mu.Lock()
		r.said = append(r.said, m)
		r.mu.Unlock()
		select {
		case r.heard <- fmt.Sprint(m["type"]):
		default: // no test listens
		}
		if m["type"] != "chat.subscribe" {
			continue
		}
		entry := m["sessions"].([]any)[0].(map[string]any)
		for i := range r.each {
			text := fmt.Sprintf(`{"kind":"text","sessionId":"%s","seq":%d}`, conversation, int(entry["lastSeq"].(float64))+i+1)
			if conn.Write(req.Context(), websocket.MessageText, []byte(text)) != nil {
				return
			}
		}
		if r.each > 0 {
			conn.Close(1012, "restarting")
			return
		}
	}
}

// collected is what a Chat has brought.
type collected struct {
	frames chan string
	lost   chan error
}

func newCollected() collected { return collected{make(chan string, 100), make(chan error, 100)} }

func (c collected) Frame(f ChatFrame) {
	c.frames <- fmt.Sprintf("%s %s %d", f.Kind, f.Conversation, f.Seq)
}
func (c collected) Lost(_ time.Time, why error) { c.lost <- why }

// TestChatComesBack: after each socket's end the next one goes on behind the last
// event.
// It is about weakness 16 in deploy/e2e/README.md.
func TestChatComesBack(t *testing.T) {
	relay := newChatRelay(t, 2)
	user := NewUser(UserOptions{Token: "u", Session: "ses_1", Relays: []string{relay.server.URL}})
	defer user.Close()
	got := newCollected()
	c := OpenChat(t.Context(), user, ChatOptions{Features: []string{"control"}}, got)
	if err := c.Follow(t.Context(), conversation, 7); err != nil {
		t.Fatal(err)
	}
	for seq := 8; seq < 12; seq++ {
		want := fmt.Sprintf("text %s %d", conversation, seq)
		if frame := <-got.frames; frame != want {
			t.Fatalf("%s, want %s", frame, want)
		}
	}
	c.Close()
	if c.Sockets() < 2 || c.Mark(conversation) < 11 {
		t.Errorf("%d sockets, mark %d", c.Sockets(), c.Mark(conversation))
	}
	relay.mu.Lock()
	defer relay.mu.Unlock()
	if relay.said[0]["type"] != "chat.hello" {
		t.Errorf("said first: %v", relay.said[0])
	}
}

// TestChatSays: a message waits for the socket, and ends with the Chat.
// It is about weakness 16 in deploy/e2e/README.md.
func TestChatSays(t *testing.T) {
	relay := newChatRelay(t, 0)
	relay.open = make(chan struct{})
	user := NewUser(UserOptions{Token: "u", Session: "ses_1", Relays: []string{relay.server.URL}})
	defer user.Close()
	c := OpenChat(t.Context(), user, ChatOptions{Once: true}, newCollected())
	said := make(chan error)
	go func() { said <- c.Say(t.Context(), map[string]string{"type": "chat.send"}) }() // ends below
	relay.open <- struct{}{}
	select {
	case err := <-said:
		t.Fatalf("said without a socket: %v", err)
	default:
	}
	relay.open <- struct{}{}
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	if heard := <-relay.heard; heard != "chat.send" {
		t.Errorf("the relay has heard %s", heard)
	}
	c.Close()
	if err := c.Say(context.Background(), "late"); err == nil {
		t.Error("said after the end")
	}
}
