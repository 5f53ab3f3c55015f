package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// A fakeChat is one conversation, whose sockets get what the test says. Guarded by
// the relay's mu.
type fakeChat struct {
	sockets map[*websocket.Conn]context.Context
	ack     string   // the rest of chat_subscribed
	heard   []string // frames of the page, but for hello and subscribe
	down    bool     // no socket opens

	subscribed    int // times
	refuseUploads bool

	rows      []string // of the history
	continued int      // how often it went on in a terminal
}

func (f *fakeRelay) registerChat(mux *http.ServeMux) {
	f.chat = fakeChat{sockets: map[*websocket.Conn]context.Context{}, ack: `"isProcessing":false,"lastSeq":0,"pendingPermissions":[]`}
	mux.HandleFunc("POST /chat-session", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := f.user(w, r, true); !ok {
			return
		}
		f.mu.Lock()
		down := f.chat.down
		f.mu.Unlock()
		if down {
			refuse(w, protocol.KindUnavailable)
			return
		}
		answer(w, 200, map[string]string{"ws_url": "ws://" + r.Host + "/ws", "ticket": "chat"})
	})
	mux.HandleFunc("GET /ws", f.chatSocket)
	data := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if _, ok := f.user(w, r, true); ok {
				answer(w, 200, map[string]any{"success": true, "data": json.RawMessage(body)})
			}
		}
	}
	mux.HandleFunc("GET /api/providers/capabilities", data(`{"providers":[{"provider":"claude","permissionModes":["default","plan"],"defaultPermissionMode":"default","supportsImages":true}]}`))
	mux.HandleFunc("GET /api/providers/sessions/recent", data(`{"sessions":[
		{"sessionId":"`+string(conversation)+`","provider":"claude","summary":"Mend the build","isProcessing":false},
		{"sessionId":"c2","provider":"claude","summary":"A \u202elong talk","isProcessing":true}]}`))
	mux.HandleFunc("GET /sidebar-tabs", f.listSidePanel)
	mux.HandleFunc("GET /api/projects", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := f.user(w, r, true); ok {
			answer(w, 200, []map[string]string{{"projectId": "prj_1"}})
		}
	})
	mux.HandleFunc("POST /api/projects/prj_1/upload-images", f.uploadImage)
	mux.HandleFunc("GET /api/providers/sessions/{id}/messages", f.chatHistory)
}

func (f *fakeRelay) chatSocket(w http.ResponseWriter, r *http.Request) {
	offered := strings.Split(r.Header.Get("Sec-WebSocket-Protocol"), ", ")
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: offered, InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		_, data, err := c.Read(r.Context())
		if err != nil {
			break
		}
		f.mu.Lock()
		switch text := string(data); {
		case strings.Contains(text, `"chat.hello"`):
		case strings.Contains(text, `"chat.subscribe"`):
			f.chat.subscribed++
			f.chat.sockets[c] = r.Context()
			f.chatWrite(c, r.Context(), `{"kind":"chat_subscribed","sessionId":"`+string(conversation)+`",`+f.chat.ack+`}`)
		default:
			f.chat.heard = append(f.chat.heard, text)
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	delete(f.chat.sockets, c)
	f.mu.Unlock()
}

// uploadImage keeps no image, and answers as if.
func (f *fakeRelay) uploadImage(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	_, header, err := r.FormFile("images")
	f.mu.Lock()
	refused := f.chat.refuseUploads
	f.mu.Unlock()
	if err != nil || refused {
		answer(w, 400, map[string]string{"error": "File too large"})
		return
	}
	answer(w, 200, map[string]any{"images": []protocol.ChatImage{{
		Name: header.Filename, Data: "/api/assets/" + header.Filename, Size: header.Size, MimeType: header.Header.Get("Content-Type"),
	}}})
}

// sent returns how many messages the page has sent.
func (f *fakeRelay) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard(`"chat.send"`)
}

// lastName returns the name of the message that the page has sent last.
func (f *fakeRelay) lastName() (name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frame := range f.chat.heard {
		var message struct{ Type, ClientMessageID string }
		if json.Unmarshal([]byte(frame), &message) == nil && message.Type == "chat.send" {
			name = message.ClientMessageID
		}
	}
	return name
}

func (f *fakeRelay) chatWrite(c *websocket.Conn, ctx context.Context, frame string) {
	_ = c.Write(ctx, websocket.MessageText, []byte(frame)) // a socket that is gone is found by its reader
}

// chats sends frames of the conversation to all who follow it. Each lacks the
// beginning that all have.
func (f *fakeRelay) chats(t testing.TB, frames ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frame := range frames {
		frame = `{"sessionId":"` + string(conversation) + `",` + frame + `}`
		if !json.Valid([]byte(frame)) {
			t.Fatalf("no JSON: %s", frame)
		}
		for c, ctx := range f.chat.sockets {
			f.chatWrite(c, ctx, frame)
		}
	}
}
