// Package e2e plays users of a real stack: it starts the real programs, talks
// to them as browsers and machines do, and checks what comes back.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// A User is somebody with a token at a relay.
type User struct {
	ID    protocol.UserID
	Token string
	Base  string // the relay's origin
}

// Call makes a request with a bearer token and a JSON body (nil: none), and
// returns the status and the body.
func Call(ctx context.Context, method, url, bearer string, body any, header ...string) (int, []byte, error) {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, payload)
	if err != nil {
		return 0, nil, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, nil, nil // the body is the connection
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return resp.StatusCode, data, err
}

// newRequest makes a request with a bearer token and a JSON body.
func newRequest(ctx context.Context, method, url, bearer, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// call is Call that wants a status and decodes the answer into out.
func call(ctx context.Context, want int, out any, method, url, bearer string, body any) error {
	status, data, err := Call(ctx, method, url, bearer, body)
	if err != nil {
		return err
	}
	if status != want {
		return fmt.Errorf("%s %s: status %d: %s", method, url, status, data)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// Grant buys a grant for a session with all that the user may do.
func (u User) Grant(ctx context.Context, session protocol.SessionID, capabilities ...protocol.Capability) (string, error) {
	body := map[string]any{"session_id": session}
	if len(capabilities) > 0 {
		body["capabilities"] = capabilities
	}
	var answer struct {
		Grant string `json:"grant"`
	}
	err := call(ctx, http.StatusOK, &answer, http.MethodPost, u.Base+"/grants", u.Token, body)
	return answer.Grant, err
}

// A Ticket opens one socket.
type Ticket struct {
	URL    string `json:"ws_url"`
	Ticket string `json:"ticket"`
}

// Ticket buys a ticket with a grant.
func (u User) Ticket(ctx context.Context, grant string, session protocol.SessionID, pty protocol.PTYID) (Ticket, error) {
	var t Ticket
	err := call(ctx, http.StatusOK, &t, http.MethodPost, u.Base+"/pty-session", grant,
		map[string]any{"session_id": session, "pty_id": pty})
	return t, err
}

// Attach opens a terminal. since may be empty.
func (u User) Attach(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, since string) (*Terminal, error) {
	grant, err := u.Grant(ctx, session)
	if err != nil {
		return nil, err
	}
	ticket, err := u.Ticket(ctx, grant, session, pty)
	if err != nil {
		return nil, err
	}
	if since != "" {
		ticket.URL += "?since=" + since
	}
	return Dial(ctx, ticket, u.Base)
}

// Dial opens the socket of a ticket.
func Dial(ctx context.Context, t Ticket, origin string) (*Terminal, error) {
	conn, err := DialRaw(ctx, t, origin)
	if err != nil {
		return nil, err
	}
	term := &Terminal{conn: conn, changed: make(chan struct{}), over: make(chan struct{})}
	go term.read() // ends with the socket, which Close closes
	return term, nil
}

// A Message is a text frame as it came.
type Message map[string]any

// Type returns the message's type.
func (m Message) Type() string { s, _ := m["type"].(string); return s }

// A Terminal is an attached socket that remembers everything it got.
type Terminal struct {
	conn *websocket.Conn
	over chan struct{} // closed when the socket has ended

	mu       sync.Mutex
	output   []byte
	messages []Message
	err      error
	changed  chan struct{} // closed and replaced when something comes
}

func (t *Terminal) read() {
	defer close(t.over)
	for {
		kind, data, err := t.conn.Read(context.Background())
		t.mu.Lock()
		switch {
		case err != nil:
			t.err = err
		case kind == websocket.MessageBinary:
			t.output = append(t.output, data...)
		default:
			var m Message
			if err := json.Unmarshal(data, &m); err != nil {
				m = Message{"type": "malformed", "text": string(data)}
			}
			t.messages = append(t.messages, m)
		}
		close(t.changed)
		t.changed = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Await waits until done is satisfied by what has come so far.
func (t *Terminal) Await(ctx context.Context, what string, done func(output []byte, messages []Message, err error) bool) error {
	for {
		t.mu.Lock()
		ok, changed, tail, err := done(t.output, t.messages, t.err), t.changed, t.output, t.err
		t.mu.Unlock()
		if ok {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for %s: the socket ended: %w", what, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; the output ends in %q, the messages in %v",
				what, ctx.Err(), tail[max(0, len(tail)-300):], t.Messages())
		}
	}
}

// Expect waits until the output contains text.
func (t *Terminal) Expect(ctx context.Context, text string) error {
	return t.Await(ctx, fmt.Sprintf("%q", text), func(output []byte, _ []Message, _ error) bool {
		return bytes.Contains(output, []byte(text))
	})
}

// ExpectMessage waits for a message of a type, of which fits holds.
func (t *Terminal) ExpectMessage(ctx context.Context, typ string, fits func(Message) bool) (found Message, err error) {
	err = t.Await(ctx, typ, func(_ []byte, messages []Message, _ error) bool {
		for _, m := range messages {
			if m.Type() == typ && (fits == nil || fits(m)) {
				found = m
				return true
			}
		}
		return false
	})
	return found, err
}

// ExpectClose waits for the end of the socket and returns the close code.
func (t *Terminal) ExpectClose(ctx context.Context) (websocket.StatusCode, error) {
	select {
	case <-t.over:
		t.mu.Lock()
		defer t.mu.Unlock()
		return websocket.CloseStatus(t.err), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Output returns what has come so far.
func (t *Terminal) Output() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.output)
}

// Messages returns the text frames so far.
func (t *Terminal) Messages() []Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Message(nil), t.messages...)
}

// Type sends keystrokes.
func (t *Terminal) Type(ctx context.Context, keys string) error {
	return t.conn.Write(ctx, websocket.MessageBinary, []byte(keys))
}

// Paste sends data of any size, in messages that the relay takes.
func (t *Terminal) Paste(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), 32<<10)
		if err := t.conn.Write(ctx, websocket.MessageBinary, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Text sends a text frame as it is.
func (t *Terminal) Text(ctx context.Context, text string) error {
	return t.conn.Write(ctx, websocket.MessageText, []byte(text))
}

// Say sends a control message.
func (t *Terminal) Say(ctx context.Context, m Message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return t.Text(ctx, string(data))
}

// Close ends the socket at once.
func (t *Terminal) Close() {
	t.conn.CloseNow()
	<-t.over
}

// DialRaw opens the socket of a ticket for a caller that reads it itself.
func DialRaw(ctx context.Context, t Ticket, origin string) (*websocket.Conn, error) {
	conn, _, err := websocket.Dial(ctx, t.URL, &websocket.DialOptions{
		HTTPHeader:   http.Header{"Origin": {origin}},
		Subprotocols: []string{protocol.SubprotocolTicket + t.Ticket},
	})
	if err == nil {
		conn.SetReadLimit(16 << 20)
	}
	return conn, err
}
