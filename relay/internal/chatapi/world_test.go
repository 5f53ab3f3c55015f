package chatapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// patience bounds what would hang if it failed.
const patience = time.Minute

// conv is the sandbox's conversation, and none one that it doesn't have.
const conv, none = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"

// A world is the API at a real server, between a control plane that signs and a
// sandbox with one conversation.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	tunnels   *relaytest.Tunnels
	relay     *tunnel.Session // the sandbox's tunnel
	api       *API
	origin    string
	client    *http.Client

	mu sync.Mutex
	// Guarded by mu.
	state   protocol.ChatState
	lease   protocol.Lease
	streams map[*tunnel.Stream]bool
	sign    func(dispatch.SignRequest) (int, string) // the control plane's refusal; 0: it signs
	execute func(c *jws.Command) protocol.Result     // the sandbox's
	serve   func(http.ResponseWriter, *http.Request) // the sandbox's
	keys    map[string]protocol.CommandEnvelope      // what was signed, by idempotency key
	signed  []relaytest.Asked
	gate    chan struct{} // signing waits until it is closed
}

func newWorld(t *testing.T) *world { return newWorldWith(t, relaytest.NewAuthority(t), nil) }

func newWorldWith(t *testing.T, authority *relaytest.Authority, key []byte) *world {
	t.Helper()
	w := &world{
		t: t, authority: authority, tunnels: &relaytest.Tunnels{}, client: &http.Client{Transport: &http.Transport{}},
		state: protocol.ChatState{Run: protocol.RunIdle, Provider: "claude"}, lease: protocol.Lease{Revision: 1, State: protocol.LeaseFree},
		streams: map[*tunnel.Stream]bool{}, keys: map[string]protocol.CommandEnvelope{},
		execute: func(c *jws.Command) protocol.Result {
			return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
		},
		serve: http.NotFound,
	}
	controlPlane := httptest.NewServer(http.HandlerFunc(w.controlPlane))
	t.Cleanup(controlPlane.Close)
	w.connect()
	log := slog.New(slog.DiscardHandler)
	dispatcher := dispatch.New(dispatch.Options{Keys: authority.Keys, Tunnels: w.tunnels, Log: log})
	t.Cleanup(dispatcher.Close)
	hubs := chathub.NewSet(chathub.Options{Tunnels: w.tunnels, Grants: authority.Grants, Log: log, Metrics: chathub.NewMetrics(prometheus.NewRegistry())})
	apps, err := access.NewAppSessions(key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	w.origin = "http://" + server.Listener.Addr().String()
	origins, err := access.NewOrigins([]string{w.origin, "http://other.example"})
	if err != nil {
		t.Fatal(err)
	}
	signing := &http.Client{Transport: &http.Transport{}}
	w.api = &API{
		Desk: &webapp.Desk{
			Origins: origins, Tickets: access.NewTicketStore(time.Now), Apps: apps, Grants: authority.Grants, Keys: authority.Keys, Log: log,
		},
		Hubs: hubs, Tunnels: w.tunnels, Signer: &dispatch.Signer{URL: controlPlane.URL, Client: signing}, Dispatcher: dispatcher,
		Requests: reverseproxy.New(authority.Grants, prometheus.NewRegistry()), Metrics: NewMetrics(prometheus.NewRegistry()), Log: log,
	}
	mux := http.NewServeMux()
	methods := access.NewMethods(mux)
	origins.AnswerForeign(SocketPath, ForeignOrigin)
	w.api.Register(methods)
	mux.HandleFunc("/", http.NotFound)
	methods.RefuseOthers()
	server.Config.Handler = origins.Guard(origins.Share(mux))
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		hubs.Close(ctx)
		w.api.Close(ctx)
		w.client.CloseIdleConnections()
		signing.CloseIdleConnections()
		server.Close()
	})
	return w
}

// connect gives the sandbox a new tunnel.
func (w *world) connect() {
	agent, relay := tunneltest.Pair(w.t)
	w.relay = relay
	w.tunnels.Connect(relay)
	relaytest.Answer(w.t, agent, w.answer)
}

func (w *world) controlPlane(answer http.ResponseWriter, r *http.Request) {
	req := w.authority.Asked(r)
	var asked dispatch.SignRequest
	asked.Grant, asked.Op, asked.Target, asked.IdempotencyKey = req.Grant, req.Op, req.Target, req.IdempotencyKey
	w.mu.Lock()
	w.signed = append(w.signed, req)
	refuse, gate := w.sign, w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if refuse != nil {
		if status, message := refuse(asked); status != 0 {
			answer.WriteHeader(status)
			json.NewEncoder(answer).Encode(map[string]any{"error": protocol.ErrorBody{Message: message}})
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	env, known := w.keys[req.IdempotencyKey]
	if !known {
		env = w.authority.Envelope(req)
		w.keys[req.IdempotencyKey] = env
	}
	relaytest.Signed(answer, env)
}

// answer is the sandbox.
func (w *world) answer(in *tunnel.Incoming) {
	switch in.Open.Kind {
	case protocol.StreamChat:
		w.serveChat(in)
	case protocol.StreamHTTP:
		grant := in.Open.Grant
		relaytest.HTTP(in, func(answer http.ResponseWriter, r *http.Request) {
			r.Header.Set("X-Grant", grant)
			w.mu.Lock()
			serve := w.serve
			w.mu.Unlock()
			serve(answer, r)
		})
	case protocol.StreamCommand:
		w.mu.Lock()
		execute := w.execute
		w.mu.Unlock()
		w.authority.Carry(in, execute)
	default:
		stream, err := in.Accept(protocol.Opened{Result: []byte("{}")})
		if err == nil {
			stream.Read(make([]byte, 1))
			stream.Close()
		}
	}
}

// serveChat streams the conversation's states.
func (w *world) serveChat(in *tunnel.Incoming) {
	var p protocol.ChatParams
	json.Unmarshal(in.Open.Params, &p)
	if p.ConversationID != conv || p.SessionID != relaytest.Session {
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no such conversation"))
		return
	}
	w.mu.Lock() // whoever has heard of the stream is told all that is said on it
	result, err := json.Marshal(protocol.ChatOpened{Epoch: 7, FirstSeq: 1, From: 1, State: w.state, Lease: w.lease})
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err == nil {
		w.streams[stream] = true
	}
	w.mu.Unlock()
	if err != nil {
		return
	}
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		if m, err := protocol.Decode(frame); err == nil {
			if m, ok := m.(protocol.GrantAdd); ok {
				w.write(stream, protocol.Granted{Handle: m.Handle})
			}
		}
	}
	w.mu.Lock()
	delete(w.streams, stream)
	w.mu.Unlock()
	stream.Close()
}

func (w *world) write(stream *tunnel.Stream, m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	protocol.Write(stream, m)
}

// says sends a message on the conversation's streams.
func (w *world) says(m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := m.(type) {
	case protocol.ChatState:
		w.state = m
	case protocol.Leased:
		w.lease = m.Lease
	}
	for stream := range w.streams {
		protocol.Write(stream, m)
	}
}

// refuses has the sandbox refuse every command with a fault.
func (w *world) refuses(fault protocol.ChatFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.execute = func(c *jws.Command) protocol.Result {
		e := fault.Error()
		callback, _ := json.Marshal(protocol.ExecutionCallback{
			Type: protocol.CallbackType, CommandID: c.CommandID, Status: protocol.StatusError, Error: new(e.Body()),
		})
		return protocol.Result{Callback: callback, Kind: e.Kind}
	}
}

// ops returns what was signed.
func (w *world) ops() (ops []relaytest.Asked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(ops, w.signed...)
}

// caps returns a change of a grant: who has it, and what it allows in the session.
func caps(who string, caps ...protocol.Capability) func(*jws.Grant) {
	return func(g *jws.Grant) {
		g.Subject, g.Name, g.Session, g.Caps = protocol.UserID("usr_"+who), who, relaytest.Session, append(caps, protocol.CapView)
	}
}

// ask sends a request. Host and Origin are headers like any other; without a bearer
// it has none.
func (w *world) ask(method, path, bearer, body string, header ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.origin+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// own is the Origin of a page of ours.
func (w *world) own() []string { return []string{"Origin", w.origin} }

// app returns a cookie of the web client under a grant.
func (w *world) app(token string, header ...string) string {
	w.t.Helper()
	resp := w.ask(http.MethodPost, "/app-session", token, "", header...)
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%d %s", resp.StatusCode, bodyOf(w.t, resp))
	}
	return access.AppCookieName + "=" + resp.Cookies()[0].Value
}

// ticket returns a ticket for a grant.
func (w *world) ticket(token string) string {
	w.t.Helper()
	var body struct{ Ticket string }
	decode(w.t, w.ask(http.MethodPost, "/chat-session", token, ""), &body)
	return body.Ticket
}

// A user is a chat socket's client.
type user struct {
	t    *testing.T
	conn *websocket.Conn
}

// dial opens a chat socket; a refusal is its status.
func (w *world) dial(path string, header ...string) (*user, int) {
	w.t.Helper()
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	host := h.Get("Host")
	h.Del("Host")
	conn, resp, err := websocket.Dial(w.t.Context(), w.origin+path, &websocket.DialOptions{
		HTTPHeader: h, Host: host, HTTPClient: w.client, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp == nil {
			w.t.Fatal(err)
		}
		return nil, resp.StatusCode
	}
	conn.SetReadLimit(4 << 20)
	w.t.Cleanup(func() { conn.CloseNow() })
	return &user{w.t, conn}, http.StatusSwitchingProtocols
}

// join opens a chat socket under a grant.
func (w *world) join(change func(*jws.Grant)) *user {
	w.t.Helper()
	_, token := w.authority.Grant(change)
	u, status := w.dial(SocketPath, append(w.own(), "Authorization", "Bearer "+w.ticket(token))...)
	if u == nil {
		w.t.Fatalf("status %d", status)
	}
	return u
}

func (u *user) say(frame string) {
	u.t.Helper()
	if err := u.conn.Write(u.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		u.t.Fatal(err)
	}
}

// A frame is what came to a user.
type frame struct {
	Kind, Code, Error string
	Content           string
	SessionID         *string `json:"sessionId"`
	ClientMessageID   string  `json:"clientMessageId"`
	Timestamp         string
	Processing        bool `json:"isProcessing"`
}

func (f frame) session() string {
	if f.SessionID == nil {
		return "null"
	}
	return *f.SessionID
}

// next returns the next frame. Presence comes at any time and is passed over.
func (u *user) next() (f frame) {
	u.t.Helper()
	for f = u.any(); f.Kind == "presence"; f = u.any() {
	}
	return f
}

func (u *user) any() (f frame) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	_, data, err := u.conn.Read(ctx)
	if err != nil {
		u.t.Fatal(err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		u.t.Fatalf("%s: %v", data, err)
	}
	return f
}

// refused expects a protocol_error next.
func (u *user) refused(code protocol.ChatCode, session, text string) frame {
	u.t.Helper()
	f := u.next()
	if f.Kind != "protocol_error" || f.Code != string(code) || f.session() != session || text != "" && f.Error != text {
		u.t.Errorf("%+v of %s, want %s of %s: %s", f, f.session(), code, session, text)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", f.Timestamp); err != nil {
		u.t.Error(err)
	}
	return f
}

// acked expects a chat_subscribed next.
func (u *user) acked(session string) {
	u.t.Helper()
	if f := u.next(); f.Kind != "chat_subscribed" || f.session() != session {
		u.t.Errorf("%+v", f)
	}
}

// closed expects the socket's end.
func (u *user) closed(code int) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	for {
		_, _, err := u.conn.Read(ctx)
		if err == nil {
			continue
		}
		if got := websocket.CloseStatus(err); int(got) != code {
			u.t.Errorf("closed with %v (%v), want %d", got, err, code)
		}
		return
	}
}

// subscribe is a frame.
func subscribe(id string) string {
	return `{"type":"chat.subscribe","sessions":[{"sessionId":"` + id + `"}]}`
}
