package shellapi

import (
	"context"
	"encoding/json"
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
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// patience bounds what would hang if it failed.
const patience = time.Minute

// A world is the API at a real server, between a control plane that signs and a
// sandbox that starts terminals, which relaytest.User controls and which echo.
type world struct {
	t         testing.TB
	authority *relaytest.Authority
	hubs      *hub.Set
	agent     *tunnel.Session
	api       *API
	origin    string
	client    *http.Client
	terminals gateway.Terminals

	mu sync.Mutex
	// Guarded by mu.
	running map[protocol.PTYID]*terminal
	refuses func(kind string) error // the sandbox's answer; nil: it does as it is told
	signed  []relaytest.Asked
	made    int
	late    bool
	heard   *sync.Cond // a terminal was told something
}

// A terminal is one of the sandbox's. The world's mu guards it.
type terminal struct {
	epoch     protocol.Epoch
	log       []byte
	exited    *protocol.Exited
	seen      bool // somebody has seen its end
	due       bool // whoever comes next does
	streams   map[*tunnel.Stream]bool
	typed     []byte
	sizes     [][2]int
	addresses []protocol.Address
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, authority: relaytest.NewAuthority(t), client: &http.Client{Transport: &http.Transport{}},
		running: map[protocol.PTYID]*terminal{},
	}
	w.heard = sync.NewCond(&w.mu)
	controlPlane := httptest.NewServer(http.HandlerFunc(w.sign))
	t.Cleanup(controlPlane.Close)
	agent, relay := tunneltest.Pair(t)
	w.agent = agent
	tunnels := &relaytest.Tunnels{}
	tunnels.Connect(relay)
	relaytest.Answer(t, agent, w.answer)
	log := slog.New(slog.DiscardHandler)
	dispatcher := dispatch.New(dispatch.Options{Keys: w.authority.Keys, Tunnels: tunnels, Log: log})
	t.Cleanup(dispatcher.Close)
	registry := prometheus.NewRegistry()
	w.hubs = hub.NewSet(tunnels, log, hub.NewMetrics(registry))
	w.hubs.Under(w.authority.Grants)
	apps, err := access.NewAppSessions(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	w.origin = "http://" + server.Listener.Addr().String()
	origins, err := access.NewOrigins([]string{w.origin})
	if err != nil {
		t.Fatal(err)
	}
	signing := &http.Client{Transport: &http.Transport{}}
	w.api = &API{
		Desk: &webapp.Desk{
			Origins: origins, Tickets: access.NewTicketStore(time.Now), Apps: apps, Grants: w.authority.Grants, Keys: w.authority.Keys, Log: log,
		},
		Hubs: w.hubs, Signer: &dispatch.Signer{URL: controlPlane.URL, Client: signing}, Dispatcher: dispatcher,
		Metrics: NewMetrics(registry), Log: log,
	}
	mux := http.NewServeMux()
	w.api.Register(mux)
	(&gateway.Terminals{Keys: w.authority.Keys, Hubs: w.hubs, Gateway: &gateway.Gateway{
		Origins: origins, Tickets: access.NewTicketStore(time.Now), Grants: w.authority.Grants, Log: log, Metrics: gateway.NewMetrics(registry),
	}}).Register(mux)
	server.Config.Handler = origins.Guard(mux)
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.hubs.Close(ctx)
		w.api.Close(ctx)
		if ctx.Err() != nil {
			t.Error("sockets stay")
		}
		w.client.CloseIdleConnections()
		signing.CloseIdleConnections()
		server.Close()
	})
	return w
}

// sign is the control plane.
func (w *world) sign(answer http.ResponseWriter, r *http.Request) {
	req := w.authority.Asked(r)
	w.mu.Lock()
	w.signed = append(w.signed, req)
	w.mu.Unlock()
	if _, _, err := op.Decode(req.Op); err != nil {
		answer.WriteHeader(protocol.KindOf(err).Status())
		json.NewEncoder(answer).Encode(map[string]any{"error": protocol.ErrorBody{Message: err.Error()}})
		return
	}
	relaytest.Signed(answer, w.authority.Envelope(req))
}

// answer is the sandbox.
func (w *world) answer(in *tunnel.Incoming) {
	switch in.Open.Kind {
	case protocol.StreamTerminal:
		w.serve(in)
	case protocol.StreamCommand:
		w.authority.Carry(in, w.execute)
	}
}

// execute starts and closes terminals.
func (w *world) execute(c *jws.Command) protocol.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := c.Target.PTYID
	now := w.running[id]
	var err error
	if w.refuses != nil {
		err = w.refuses(c.Kind())
	}
	switch {
	case err != nil:
	case c.Kind() == op.KindPTYCreate && now != nil && !now.seen:
		now.due = now.exited != nil
		err = protocol.Errorf(protocol.KindConflict, "terminal %s exists", id)
	case c.Kind() == op.KindPTYCreate:
		w.made++
		w.running[id] = &terminal{epoch: protocol.Epoch(w.made), streams: map[*tunnel.Stream]bool{}}
	case c.Kind() == op.KindPTYClose && now == nil:
		err = protocol.Errorf(protocol.KindNotFound, "no such terminal")
	case c.Kind() == op.KindPTYClose:
		delete(w.running, id)
		w.exit(now, protocol.Exited{Code: -1, Signal: "SIGHUP"})
	}
	if err != nil {
		e := protocol.AsError(err)
		callback, _ := json.Marshal(protocol.ExecutionCallback{
			Type: protocol.CallbackType, CommandID: c.CommandID, Status: protocol.StatusError, Error: new(e.Body()),
		})
		return protocol.Result{Callback: callback, Kind: e.Kind}
	}
	return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: id})
}

// serve is a stream of a terminal.
func (w *world) serve(in *tunnel.Incoming) {
	var params protocol.TerminalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	term := w.running[params.PTYID]
	if term == nil || params.SessionID != relaytest.Session {
		w.mu.Unlock()
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no such terminal"))
		return
	}
	stream := w.opens(in, term)
	w.mu.Unlock()
	if stream == nil {
		return
	}
	defer stream.Close()
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			w.t.Error(err)
			break
		}
		w.hears(term, stream, m)
	}
	w.mu.Lock()
	delete(term.streams, stream)
	w.mu.Unlock()
}

// opens begins a stream with all that the terminal has printed. The caller holds mu.
func (w *world) opens(in *tunnel.Incoming, term *terminal) *tunnel.Stream {
	result, err := json.Marshal(protocol.TerminalOpened{
		Epoch: term.epoch, Head: uint64(len(term.log)), Cols: 80, Rows: 24, Claimed: true, Exited: term.exited,
		Lease: protocol.Lease{Revision: 1, Term: 1, Holder: relaytest.User, GrantID: "gr_1", State: protocol.LeaseHeld},
	})
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return nil
	}
	for _, a := range term.addresses {
		protocol.Write(stream, a)
	}
	if len(term.log) > 0 {
		protocol.Write(stream, protocol.Data{Bytes: term.log})
	}
	if term.exited != nil {
		term.seen = term.seen || term.due
		protocol.Write(stream, *term.exited)
	} else {
		term.streams[stream] = true
	}
	return stream
}

// hears handles what a relay sends about a terminal.
func (w *world) hears(term *terminal, stream *tunnel.Stream, m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := m.(type) {
	case protocol.GrantAdd:
		protocol.Write(stream, protocol.Granted{Handle: m.Handle})
	case protocol.Input:
		term.typed = append(term.typed, m.Bytes...)
		w.print(term, m.Bytes)
		protocol.Write(stream, protocol.InputAck{Client: m.Client, Seq: m.Seq})
	case protocol.Resize:
		term.sizes = append(term.sizes, [2]int{m.Cols, m.Rows})
	}
	w.heard.Broadcast()
}

// print has a terminal print p. The caller holds mu.
func (w *world) print(term *terminal, p []byte) {
	for stream := range term.streams {
		protocol.Write(stream, protocol.Data{Offset: uint64(len(term.log)), Bytes: p})
	}
	term.log = append(term.log, p...)
}

// exit ends a terminal. The caller holds mu.
func (w *world) exit(term *terminal, how protocol.Exited) {
	how.Offset = uint64(len(term.log))
	term.exited = &how
	for stream := range term.streams {
		term.seen = true
		protocol.Write(stream, how)
	}
}

// with calls f with the terminal of a shell.
func (w *world) with(shell op.Shell, f func(*terminal)) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	term := w.running[shell.PTYID(relaytest.Session)]
	if term == nil {
		w.t.Fatalf("there is no terminal of %+v", shell)
	}
	f(term)
}

// says prints in the terminal of a shell, in pieces.
func (w *world) says(shell op.Shell, pieces ...string) {
	w.t.Helper()
	w.with(shell, func(term *terminal) {
		for _, p := range pieces {
			w.print(term, []byte(p))
		}
	})
}

// ops returns the kinds of what was signed.
func (w *world) ops() (kinds []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.signed {
		kinds = append(kinds, op.KindOf(s.Op))
	}
	return kinds
}

// until waits until ok is true of the terminal of a shell. It looks whenever a relay
// has said something about one.
func (w *world) until(shell op.Shell, what string, ok func(*terminal) bool) {
	w.t.Helper()
	late := time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late = true
		w.heard.Broadcast()
	})
	defer late.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !ok(w.running[shell.PTYID(relaytest.Session)]) {
		if w.late {
			w.t.Fatalf("still waiting: %s", what)
		}
		w.heard.Wait()
	}
}

// allows is a grant of the controller's, or of somebody else's, in the session.
func allows(who protocol.UserID, caps ...protocol.Capability) func(*jws.Grant) {
	return func(g *jws.Grant) {
		g.Subject, g.Name, g.Session, g.Caps = who, string(who), relaytest.Session, append(caps, protocol.CapView)
	}
}

var shellCaps = []protocol.Capability{protocol.CapControl, protocol.CapShell}

// ticket returns a ticket of the web client's for a grant.
func (w *world) ticket(change func(*jws.Grant)) string {
	w.t.Helper()
	grant, token := w.authority.Grant(change)
	ticket, _, err := w.api.Desk.Tickets.IssueTicket(access.Admission{
		Grant: grant, Token: token, Target: access.Target{Kind: access.TargetChat, Session: grant.Session},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ticket
}

// A client is a shell socket, as seed 002's web client has it.
type client struct {
	*websocket.Conn
	t   testing.TB
	ctx context.Context
}

// dial opens a socket with a ticket.
func (w *world) dial(change func(*jws.Grant)) *client {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	conn, _, err := websocket.Dial(ctx, w.origin+SocketPath+"?token="+w.ticket(change), &websocket.DialOptions{
		HTTPClient: w.client, HTTPHeader: http.Header{"Origin": {w.origin}},
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

// user opens a socket of the controller's.
func (w *world) user() *client {
	w.t.Helper()
	return w.dial(allows(relaytest.User, shellCaps...))
}

// send sends a frame.
func (c *client) send(frame string) {
	c.t.Helper()
	if err := c.Write(c.ctx, websocket.MessageText, []byte(frame)); err != nil {
		c.t.Fatal(err)
	}
}

// A frame is one to a client.
type frame struct {
	Type     string `json:"type"`
	Data     string `json:"data"`
	Message  string `json:"message"`
	URL      string `json:"url"`
	AutoOpen bool   `json:"autoOpen"`
	Origin   string `json:"origin"`
}

// next returns the next frame.
func (c *client) next() (f frame) {
	c.t.Helper()
	kind, data, err := c.Read(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(data, &f); err != nil || kind != websocket.MessageText {
		c.t.Fatalf("%s: %v", data, err)
	}
	return f
}

// output returns what is printed until it ends with want, and fails for any other
// frame.
func (c *client) output(want string) (all string) {
	c.t.Helper()
	for !strings.HasSuffix(all, want) {
		f := c.next()
		if f.Type != "output" {
			c.t.Fatalf("%+v behind %q", f, all)
		}
		all += f.Data
	}
	return all
}

// ended returns how the relay closes the socket.
func (c *client) ended() websocket.StatusCode {
	c.t.Helper()
	for {
		if _, _, err := c.Read(c.ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}
