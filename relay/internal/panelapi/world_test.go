package panelapi

import (
	"bytes"
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
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/chatapi"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// patience bounds what would hang if it failed.
const patience = time.Minute

// The extensions of the tests: the panel's, another listed one, and one that isn't.
const (
	ours    = access.ExtensionScheme + "abcdefghijklmnopabcdefghijklmnop"
	another = access.ExtensionScheme + "ponmlkjihgfedcbaponmlkjihgfedcba"
	foreign = access.ExtensionScheme + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// A world is a relay's panel at a real server, between a control plane that signs
// and a sandbox that has terminals.
type world struct {
	t         testing.TB
	authority *relaytest.Authority
	tunnels   *relaytest.Tunnels
	api       *API
	hubs      *hub.Set
	metrics   *prometheus.Registry
	origin    string
	client    *http.Client

	mu sync.Mutex
	// Guarded by mu.
	ops       []string // kinds that the sandbox carried out
	tabs      []op.PanelTab
	terminals map[protocol.PTYID]*terminal
	noClaude  bool
	probed    int
	asked     int    // how the agent stands
	standing  string // the answer to that; "": none
	sign      int    // a refusal's status; 0: it signs
}

// A terminal is one of the sandbox: nothing runs there before the first byte, and
// then it echoes.
type terminal struct {
	create  op.PTYCreate
	log     []byte
	cols    int
	rows    int
	typed   []byte
	begunAt [2]int // the size when the program began; zero: it hasn't
	exited  *protocol.Exited
	streams map[*tunnel.Stream]bool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}, client: &http.Client{Transport: &http.Transport{}},
		terminals: map[protocol.PTYID]*terminal{}, metrics: prometheus.NewRegistry(),
	}
	controlPlane := httptest.NewServer(http.HandlerFunc(w.controlPlane))
	t.Cleanup(controlPlane.Close)
	agent, relay := tunneltest.Pair(t)
	w.tunnels.Connect(relay)
	relaytest.Answer(t, agent, w.answer)
	log := slog.New(slog.DiscardHandler)
	dispatcher := dispatch.New(dispatch.Options{Keys: w.authority.Keys, Tunnels: w.tunnels, Log: log})
	t.Cleanup(dispatcher.Close)
	server := httptest.NewUnstartedServer(nil)
	w.origin = "http://" + server.Listener.Addr().String()
	origins, err := access.NewOrigins([]string{w.origin})
	if err == nil {
		err = origins.ListExtensions([]string{strings.TrimPrefix(ours, access.ExtensionScheme), strings.TrimPrefix(another, access.ExtensionScheme)})
	}
	if err != nil {
		t.Fatal(err)
	}
	signing := &http.Client{Transport: &http.Transport{}}
	signer := &dispatch.Signer{URL: controlPlane.URL, Client: signing}
	w.hubs = hub.NewSet(w.tunnels, log, hub.NewMetrics(w.metrics))
	w.api = &API{
		Origins: origins, Keys: w.authority.Keys, Grants: w.authority.Grants, Hubs: w.hubs, Tunnels: w.tunnels, Signer: signer,
		Dispatcher: dispatcher, Metrics: NewMetrics(w.metrics), Revision: "r1", Log: log,
	}
	mux := http.NewServeMux()
	w.api.Register(mux)
	chats := w.besides(mux, origins, dispatcher, signer)
	mux.HandleFunc("GET /health", w.api.Health(time.Now(), func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "not a panel") }))
	server.Config.Handler = origins.Guard(origins.Share(mux))
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.hubs.Close(ctx)
		w.api.Close(ctx)
		chats.Close(ctx)
		if ctx.Err() != nil {
			t.Error("sockets stay")
		}
		w.client.CloseIdleConnections()
		signing.CloseIdleConnections()
		server.Close()
	})
	return w
}

// besides adds what shares paths with the panel: terminals' tickets and the chat.
func (w *world) besides(mux *http.ServeMux, origins *access.Origins, dispatcher *dispatch.Dispatcher, signer *dispatch.Signer) *chathub.Set {
	log := slog.New(slog.DiscardHandler)
	sockets := &gateway.Gateway{
		Origins: origins, Tickets: access.NewTicketStore(time.Now), Grants: w.authority.Grants, Log: log, Metrics: gateway.NewMetrics(prometheus.NewRegistry()),
	}
	(&gateway.Terminals{Gateway: sockets, Keys: w.authority.Keys, Hubs: w.hubs, Panel: http.HandlerFunc(w.api.Mint)}).Register(mux)
	apps, err := access.NewAppSessions(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	chats := chathub.NewSet(chathub.Options{Tunnels: w.tunnels, Grants: w.authority.Grants, Log: log, Metrics: chathub.NewMetrics(prometheus.NewRegistry())})
	desk := &webapp.Desk{Origins: origins, Tickets: access.NewTicketStore(time.Now), Apps: apps, Grants: w.authority.Grants, Keys: w.authority.Keys, Log: log}
	origins.AnswerForeign(chatapi.SocketPath, chatapi.ForeignOrigin)
	(&chatapi.API{
		Desk: desk, Hubs: chats, Tunnels: w.tunnels, Signer: signer, Dispatcher: dispatcher, Panel: http.HandlerFunc(w.api.Socket),
		Requests: reverseproxy.New(w.authority.Grants, prometheus.NewRegistry()), Metrics: chatapi.NewMetrics(prometheus.NewRegistry()), Log: log,
	}).Register(mux)
	return chats
}

func (w *world) controlPlane(answer http.ResponseWriter, r *http.Request) {
	req := w.authority.Asked(r)
	w.mu.Lock()
	refuse := w.sign
	w.mu.Unlock()
	if refuse != 0 {
		answer.WriteHeader(refuse)
		io.WriteString(answer, `{"error":{"name":"AuthError","message":"no"}}`)
		return
	}
	relaytest.Signed(answer, w.authority.Envelope(req))
}

// answer is the sandbox.
func (w *world) answer(in *tunnel.Incoming) {
	switch in.Open.Kind {
	case protocol.StreamTerminal:
		w.serveTerminal(in)
	case protocol.StreamHTTP:
		relaytest.HTTP(in, w.serveHTTP)
	case protocol.StreamCommand:
		w.authority.Carry(in, func(c *jws.Command) protocol.Result {
			w.execute(c)
			return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: c.Target.PTYID})
		})
	default:
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no"))
	}
}

func (w *world) serveHTTP(answer http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.URL.Path {
	case "/sessions/ses_1/ptys":
		var list protocol.PTYList
		for id, t := range w.terminals {
			list.PTYs = append(list.PTYs, protocol.PTYInfo{ID: id, Exited: t.exited})
		}
		json.NewEncoder(answer).Encode(list)
	case "/sessions/ses_1/panel/claude":
		w.probed++
		if w.noClaude {
			io.WriteString(answer, `{"available":false,"path":null,"checked_at":"2026-01-01T00:00:00Z"}`)
			return
		}
		io.WriteString(answer, `{"available":true,"path":"/usr/bin/claude","checked_at":"2026-01-01T00:00:00Z"}`)
	case "/sessions/ses_1/sidebar/health":
		w.asked++
		if w.standing == "" {
			http.Error(answer, "no", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(answer, w.standing)
	default:
		http.NotFound(answer, r)
	}
}

// execute carries out a command.
func (w *world) execute(c *jws.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, c.Kind())
	switch c.Kind() {
	case op.KindPTYCreate:
		var create op.PTYCreate
		json.Unmarshal(c.Op, &create)
		w.terminals[c.Target.PTYID] = &terminal{create: create, cols: create.Cols, rows: create.Rows, streams: map[*tunnel.Stream]bool{}}
	case op.KindPTYClose:
		if t := w.terminals[c.Target.PTYID]; t != nil {
			t.exit(0)
		}
	case op.KindPanelTab:
		var shown op.PanelTab
		json.Unmarshal(c.Op, &shown)
		w.tabs = append(w.tabs, shown)
	}
}

// exit ends the program. The caller holds the world's mu.
func (t *terminal) exit(code int) {
	if t.exited == nil {
		t.exited = &protocol.Exited{Offset: uint64(len(t.log)), Code: code}
		t.send(*t.exited)
	}
}

func (t *terminal) send(m protocol.Message) {
	for stream := range t.streams {
		protocol.Write(stream, m)
	}
}

// print prints output. The caller holds the world's mu.
func (t *terminal) print(text []byte) {
	for len(text) > 0 {
		n := min(len(text), protocol.MaxDataBytes)
		t.send(protocol.Data{Offset: uint64(len(t.log)), Bytes: text[:n]})
		t.log, text = append(t.log, text[:n]...), text[n:]
	}
}

// serveTerminal streams one terminal, which alice controls.
func (w *world) serveTerminal(in *tunnel.Incoming) {
	var params protocol.TerminalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	t := w.terminals[params.PTYID]
	if t == nil {
		w.mu.Unlock()
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no terminal %s", params.PTYID))
		return
	}
	opened := protocol.TerminalOpened{
		Epoch: 7, Offset: uint64(len(t.log)), Head: uint64(len(t.log)), Cols: t.cols, Rows: t.rows, Creator: relaytest.User, Claimed: true,
		Lease: protocol.Lease{Revision: 1, Term: 1, Holder: relaytest.User, GrantID: "gr_1", State: protocol.LeaseHeld}, Exited: t.exited,
	}
	result, err := json.Marshal(opened)
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err == nil {
		t.streams[stream] = true
	}
	w.mu.Unlock()
	if err != nil {
		return
	}
	defer stream.Close()
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		if m, err := protocol.Decode(frame); err == nil {
			w.obey(t, stream, m)
		}
	}
	w.mu.Lock()
	delete(t.streams, stream)
	w.mu.Unlock()
}

func (w *world) obey(t *terminal, stream *tunnel.Stream, m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := m.(type) {
	case protocol.GrantAdd:
		protocol.Write(stream, protocol.Granted{Handle: m.Handle})
	case protocol.WantKeyframe:
		protocol.Write(stream, protocol.Keyframe{Offset: uint64(len(t.log)), History: m.History, Bytes: []byte("KEYFRAME")})
	case protocol.Resize:
		t.cols, t.rows = m.Cols, m.Rows
		t.send(protocol.Resized{Offset: uint64(len(t.log)), Cols: m.Cols, Rows: m.Rows})
	case protocol.Input:
		if t.begunAt == [2]int{} {
			t.begunAt = [2]int{t.cols, t.rows}
		}
		t.typed = append(t.typed, m.Bytes...)
		protocol.Write(stream, protocol.InputAck{Client: m.Client, Seq: m.Seq})
		switch {
		case bytes.HasPrefix(m.Bytes, []byte("exit ")):
			t.exit(int(m.Bytes[5] - '0'))
		case bytes.HasPrefix(m.Bytes, []byte("missing")):
			t.exit(notFound)
		case bytes.HasPrefix(m.Bytes, []byte("flood")):
			t.print(bytes.Repeat([]byte("x"), 2<<20))
		default:
			t.print(m.Bytes)
		}
	}
}

// see returns what the sandbox has of a terminal.
func (w *world) see(id protocol.PTYID, look func(*terminal)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.terminals[id]
	if t != nil && look != nil {
		look(t)
	}
	return t != nil
}

// done returns how often the sandbox carried out an operation.
func (w *world) done(kind string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.ops {
		if one == kind {
			n++
		}
	}
	return n
}

// await waits until holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	ticks, limit := time.NewTicker(time.Millisecond), time.After(patience)
	defer ticks.Stop()
	for !holds() {
		select {
		case <-ticks.C:
		case <-limit:
			w.t.Fatalf("never: %s", what)
		}
	}
}

// grant returns alice's grant for the session, after change.
func (w *world) grant(change func(*jws.Grant)) string {
	_, token := w.authority.Grant(func(g *jws.Grant) {
		g.Session = relaytest.Session
		if change != nil {
			change(g)
		}
	})
	return token
}

// ask sends a request as the panel does.
func (w *world) ask(method, path, bearer, body string, header ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.origin+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	r.Header.Set("Origin", ours)
	for i := 0; i < len(header); i += 2 {
		if r.Header.Del(header[i]); header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// text returns a body.
func (w *world) text(resp *http.Response) string {
	w.t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}

// A mint is the answer of POST /pty-session, with its cookie.
type mint struct {
	TerminalPort    int
	ExpiresAt       int64
	SessionID       protocol.PTYID
	AttachToken     string
	PTYSessionToken string
	LeaseExpiresAt  int64
	Killed          int

	cookie *http.Cookie
}

// minted reads it.
func (w *world) minted(resp *http.Response) (m mint) {
	w.t.Helper()
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%d %s", resp.StatusCode, w.text(resp))
	}
	if err := json.Unmarshal([]byte(w.text(resp)), &m); err != nil {
		w.t.Fatal(err)
	}
	m.cookie = resp.Cookies()[0]
	return m
}

// mint is POST /pty-session without a body.
func (w *world) mint(change func(*jws.Grant)) mint {
	w.t.Helper()
	return w.minted(w.ask(http.MethodPost, "/pty-session", w.grant(change), ""))
}

// upgrade asks for a socket. It returns the status and the body, or the subprotocol.
func (w *world) upgrade(header ...string) (int, string) {
	w.t.Helper()
	resp := w.ask(http.MethodGet, "/ws", "", "", append([]string{
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
	}, header...)...)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, strings.Join(resp.Header.Values("Sec-WebSocket-Protocol"), "|")
	}
	return resp.StatusCode, w.text(resp)
}

// A panel is an open socket.
type panel struct {
	*websocket.Conn
	t   testing.TB
	ctx context.Context
}

// dial opens a socket, by the cookie or by the token.
func (w *world) dial(m mint, byToken bool, query string) *panel {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	options := &websocket.DialOptions{HTTPClient: w.client, HTTPHeader: http.Header{"Origin": {ours}}}
	if byToken {
		options.Subprotocols = []string{subprotocol + m.AttachToken}
	} else {
		options.HTTPHeader.Set("Cookie", m.cookie.Name+"="+m.cookie.Value)
	}
	conn, _, err := websocket.Dial(ctx, w.origin+"/ws"+query, options)
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	w.t.Cleanup(func() {
		conn.CloseNow()
		cancel()
	})
	return &panel{conn, w.t, ctx}
}

func (p *panel) send(text string) {
	p.t.Helper()
	if err := p.Write(p.ctx, websocket.MessageText, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *panel) key(bytes string) {
	p.t.Helper()
	if err := p.Write(p.ctx, websocket.MessageBinary, []byte(bytes)); err != nil {
		p.t.Fatal(err)
	}
}

// hear returns the next text frame of a type; output is passed over, and so are
// other types.
func (p *panel) hear(kind string) map[string]any {
	p.t.Helper()
	for {
		frame, data, err := p.Read(p.ctx)
		if err != nil {
			p.t.Fatal(err)
		}
		var m map[string]any
		if frame == websocket.MessageText && json.Unmarshal(data, &m) == nil && m["type"] == kind {
			return m
		}
	}
}

// output reads output until it ends with want. A text frame fails the test.
func (p *panel) output(want string) []byte {
	p.t.Helper()
	var out []byte
	for !bytes.HasSuffix(out, []byte(want)) {
		frame, data, err := p.Read(p.ctx)
		if err != nil {
			p.t.Fatalf("after %.80q: %v", out, err)
		}
		if frame == websocket.MessageText {
			p.t.Fatalf("after %.80q: %s", out, data)
		}
		out = append(out, data...)
	}
	return out
}

// closed returns how the socket ends, and the last text frame before that.
func (p *panel) closed() (code int, reason, last string) {
	p.t.Helper()
	for {
		frame, data, err := p.Read(p.ctx)
		if err != nil {
			var end websocket.CloseError
			if !asClose(err, &end) {
				p.t.Fatal(err)
			}
			return int(end.Code), end.Reason, last
		}
		if frame == websocket.MessageText {
			last = string(data)
		}
	}
}
