package gateway

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) {
	lingerTime = patience
	goleak.VerifyTestMain(relaytest.Patient(m))
}

// patience bounds what would hang if it failed.
const patience = time.Minute

// flood is how much output the terminal makes when "flood" is typed.
const flood = 2 << 20

// A world is a gateway with a sandbox behind it whose one terminal, which
// usr_alice controls, echoes what is typed.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	hubs      *hub.Set
	revoked   *jws.RevocationSet
	server    *httptest.Server
	path      string
	metrics   *prometheus.Registry
	gateway   *Gateway
}

func newWorld(t *testing.T, start func(*httptest.Server)) *world {
	t.Helper()
	return newWorldWith(t, start, nil)
}

// newWorldWith is newWorld with another fleet, if fleet is not nil.
func newWorldWith(t *testing.T, start func(*httptest.Server), fleet hub.Tunnels) *world {
	t.Helper()
	w := &world{
		t: t, authority: relaytest.NewAuthority(t), revoked: jws.NewRevocationSet(),
		path: "/sessions/" + string(relaytest.Session) + "/ptys/" + string(relaytest.PTY) + "/ws",
	}
	agent, relay := tunneltest.Pair(t)
	tunnels := &relaytest.Tunnels{}
	tunnels.Connect(relay)
	relaytest.Answer(t, agent, w.terminal)
	log := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	w.metrics = registry
	if fleet == nil {
		fleet = tunnels
	}
	w.hubs = hub.NewSet(fleet, log, hub.NewMetrics(registry))
	mux := http.NewServeMux()
	w.server = httptest.NewUnstartedServer(nil)
	start(w.server)
	origins, err := access.NewOrigins([]string{w.server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w.gateway = &Gateway{
		Origins: origins, Tickets: access.NewTicketStore(time.Now), Grants: lifetime.New(lifetime.Options{Revoked: w.revoked}), Log: log, Metrics: NewMetrics(registry),
	}
	(&Terminals{Gateway: w.gateway, Keys: w.authority.Keys, Hubs: w.hubs}).Register(mux)
	w.server.Config.Handler = origins.Guard(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.hubs.Close(ctx)
		if ctx.Err() != nil {
			t.Error("sockets stay")
		}
		w.server.Client().CloseIdleConnections()
		w.server.Close()
	})
	return w
}

// readLog serves any part of the log as zeros, which is what a flood is made of.
func (w *world) readLog(in *tunnel.Incoming) {
	var params protocol.ReadParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		w.t.Error(err)
	}
	result, err := json.Marshal(protocol.ReadOpened{From: params.From, To: params.To, Cols: 80, Rows: 24})
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	for at := params.From; at < params.To; {
		n := min(params.To-at, protocol.MaxDataBytes)
		if protocol.Write(stream, protocol.Data{Offset: at, Bytes: make([]byte, n)}) != nil {
			return
		}
		at += n
	}
}

// terminal is the sandbox.
func (w *world) terminal(in *tunnel.Incoming) {
	if in.Open.Kind == protocol.StreamRead {
		w.readLog(in)
		return
	}
	var params protocol.TerminalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		w.t.Error(err)
	}
	if params.PTYID != relaytest.PTY {
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no terminal %s", params.PTYID))
		return
	}
	result, err := json.Marshal(protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24, Claimed: true, Lease: protocol.Lease{
		Revision: 1, Term: 1, Holder: relaytest.User, GrantID: "gr_1", State: protocol.LeaseHeld,
	}})
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	frames := protocol.NewFrameReader(stream)
	var head uint64
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			w.t.Error(err)
			return
		}
		if m, ok := m.(protocol.GrantAdd); ok {
			protocol.Write(stream, protocol.Granted{Handle: m.Handle})
		}
		if m, ok := m.(protocol.Input); ok {
			echo := m.Bytes
			if string(echo) == "flood" {
				echo = make([]byte, flood)
			}
			for len(echo) > 0 {
				n := min(len(echo), protocol.MaxDataBytes)
				protocol.Write(stream, protocol.Data{Offset: head, Bytes: echo[:n]})
				head, echo = head+uint64(n), echo[n:]
			}
			protocol.Write(stream, protocol.InputAck{Client: m.Client, Seq: m.Seq})
		}
	}
}

// grant returns usr_alice's grant after change.
func (w *world) grant(change func(*jws.Grant)) string {
	_, token := w.authority.Grant(change)
	return token
}

// ptySession asks for a ticket.
func (w *world) ptySession(token, body string, headers ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL+"/pty-session", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// timed returns how many requests for a ticket were timed.
func (w *world) timed() uint64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "fairlead_pty_session_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	w.t.Fatal("no histogram")
	return 0
}

// ticket returns a ticket and a cookie for a terminal.
func (w *world) ticket(token string, pty protocol.PTYID) (ticket, cookie string) {
	w.t.Helper()
	resp := w.ptySession(token, `{"session_id":"`+string(relaytest.Session)+`","pty_id":"`+string(pty)+`"}`)
	var answer struct {
		Ticket string `json:"ticket"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return answer.Ticket, resp.Cookies()[0].Value
}

// A request for a socket, as a browser of our origin would send it.
func (w *world) socket(path string, subprotocols ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for header, value := range map[string]string{
		"Origin": w.server.URL, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		r.Header.Set(header, value)
	}
	if len(subprotocols) > 0 {
		r.Header.Set("Sec-WebSocket-Protocol", strings.Join(subprotocols, ", "))
	}
	return r
}

// status sends r and returns the answer's status and body.
func (w *world) status(r *http.Request) (int, string) {
	w.t.Helper()
	resp, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, resp.Header.Get("Sec-WebSocket-Protocol")
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A client is a socket to the terminal.
type client struct {
	*websocket.Conn
	t   *testing.T
	ctx context.Context
}

// dial attaches a socket with a ticket.
func (w *world) dial(change func(*jws.Grant)) *client {
	w.t.Helper()
	ticket, _ := w.ticket(w.grant(change), relaytest.PTY)
	return w.dialWith("", protocol.SubprotocolTicket+ticket)
}

// dialWith attaches a socket that offers subprotocols.
func (w *world) dialWith(query string, subprotocols ...string) *client {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	conn, _, err := websocket.Dial(ctx, w.server.URL+w.path+query, &websocket.DialOptions{
		HTTPClient: w.server.Client(), HTTPHeader: http.Header{"Origin": {w.server.URL}},
		Subprotocols: subprotocols,
	})
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	w.t.Cleanup(func() {
		conn.CloseNow()
		cancel()
	})
	return &client{conn, w.t, ctx}
}

// text returns the next text frame of a type; others, and output, are passed
// over.
func (c *client) text(want string) map[string]any {
	c.t.Helper()
	for {
		if m := c.next(); m["type"] == want {
			return m
		}
	}
}

// next returns the next text frame; output is passed over.
func (c *client) next() map[string]any {
	c.t.Helper()
	for {
		kind, data, err := c.Read(c.ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		var m map[string]any
		if kind == websocket.MessageText && json.Unmarshal(data, &m) == nil {
			return m
		}
	}
}

// output returns the next n bytes of output.
func (c *client) output(n int) []byte {
	c.t.Helper()
	var out []byte
	for len(out) < n {
		kind, data, err := c.Read(c.ctx)
		if err != nil {
			c.t.Fatalf("after %d bytes: %v", len(out), err)
		}
		if kind == websocket.MessageBinary {
			out = append(out, data...)
		}
	}
	return out
}

func (c *client) send(kind websocket.MessageType, data string) {
	c.t.Helper()
	if err := c.Write(c.ctx, kind, []byte(data)); err != nil {
		c.t.Fatal(err)
	}
}
