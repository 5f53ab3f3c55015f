package pluginapi

import (
	"bufio"
	"context"
	"fmt"
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

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// patience bounds what would hang if it failed.
const patience = time.Minute

// A world is the API at a real server, with a sandbox whose plugins are a test's.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	tunnels   *relaytest.Tunnels
	relay     *tunnel.Session // the sandbox's tunnel
	api       *API
	origin    string
	agent     func(http.ResponseWriter, *http.Request) // set before a request
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}, agent: echo}
	agent, relay := tunneltest.Pair(t)
	w.relay = relay
	w.tunnels.Connect(relay)
	relaytest.Answer(t, agent, func(in *tunnel.Incoming) {
		relaytest.HTTP(in, func(rw http.ResponseWriter, r *http.Request) { w.agent(rw, r) })
	})
	log := slog.New(slog.DiscardHandler)
	apps, err := access.NewAppSessions(nil)
	must(t, err)
	server := httptest.NewUnstartedServer(nil)
	w.origin = "http://" + server.Listener.Addr().String()
	origins, err := access.NewOrigins([]string{w.origin})
	must(t, err)
	w.api = &API{
		Desk: &webapp.Desk{
			Origins: origins, Tickets: access.NewTicketStore(time.Now), Apps: apps, Grants: w.authority.Grants, Keys: w.authority.Keys, Log: log,
		},
		Tunnels: w.tunnels, Requests: reverseproxy.New(w.authority.Grants, prometheus.NewRegistry()),
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: log,
	}
	mux := http.NewServeMux()
	methods := access.NewMethods(mux)
	w.api.Register(methods)
	mux.HandleFunc("/", http.NotFound)
	methods.RefuseOthers()
	server.Config.Handler = origins.Guard(Front(mux))
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.api.Requests.Drain()
		w.api.Close(ctx)
		server.Close()
	})
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// grant signs a grant of the session with caps.
func (w *world) grant(caps ...protocol.Capability) (*jws.Grant, string) {
	return w.authority.Grant(func(g *jws.Grant) { g.Session, g.Caps = relaytest.Session, caps })
}

// ticket returns a new ticket under a grant.
func (w *world) ticket(grant *jws.Grant, token string) string {
	w.t.Helper()
	ticket, _, err := w.api.Tickets.IssueTicket(access.Admission{
		Grant: grant, Token: token, Target: access.Target{Kind: access.TargetChat, Session: relaytest.Session},
	})
	must(w.t, err)
	return ticket
}

// good returns a ticket that opens a socket.
func (w *world) good() string { return w.ticket(w.grant(protocol.CapView, protocol.CapPlugins)) }

// dial opens the socket of a name, as it stands in the URL, with a ticket.
func (w *world) dial(name, ticket string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return websocket.Dial(ctx, "ws"+strings.TrimPrefix(w.origin, "http")+Path+name+"?token="+ticket, &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {w.origin}, "Cookie": {"other=1"}},
	})
}

// open is dial for a socket that must open.
func (w *world) open(name string) *websocket.Conn {
	w.t.Helper()
	conn, _, err := w.dial(name, w.good())
	must(w.t, err)
	conn.SetReadLimit(2 * pluginsocket.MaxMessage)
	w.t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// ended reads until the socket ends, and returns with what.
func (w *world) ended(conn *websocket.Conn) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, _, err := conn.Read(ctx)
		if err == nil {
			continue
		}
		if e := (websocket.CloseError{}); asClose(err, &e) {
			return fmt.Sprint(int(e.Code), " ", e.Reason)
		}
		return "none"
	}
}

func asClose(err error, e *websocket.CloseError) bool {
	for err != nil {
		if found, ok := err.(websocket.CloseError); ok {
			*e = found
			return true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

// upgraded answers a relay as an agent does, and returns the connection.
func upgraded(rw http.ResponseWriter) (*bufio.ReadWriter, io.Closer) {
	conn, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return nil, nil
	}
	conn.SetDeadline(time.Time{})
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+pluginsocket.Upgrade+"\r\n\r\n")
	return buf, conn
}

// echo sends a client's frames back, in pieces, until one closes the socket.
func echo(rw http.ResponseWriter, _ *http.Request) {
	buf, conn := upgraded(rw)
	if conn == nil {
		return
	}
	defer conn.Close()
	from := bufio.NewReaderSize(buf, wsframe.Window)
	pipe, out := io.Pipe()
	go func() { // ends with the pipe
		c := wsframe.Carrier{From: from, To: out, Rule: wsframe.Rule{Masked: true}}
		_, err := c.Carry()
		out.CloseWithError(err)
	}()
	defer pipe.Close()
	masked := bufio.NewReader(pipe)
	for {
		h, payload, err := frameOf(masked)
		if err != nil {
			return
		}
		buf.Write(append(wsframe.Header{Final: h.Final, Opcode: h.Opcode, Length: h.Length}.Append(nil), payload...))
		if masked.Buffered() == 0 || h.Opcode == wsframe.Close {
			buf.Flush()
		}
		if h.Opcode == wsframe.Close {
			return
		}
	}
}

// frameOf reads a masked frame.
func frameOf(r *bufio.Reader) (h wsframe.Header, payload []byte, err error) {
	var head []byte
	for n := 0; n == 0; h, n, _ = wsframe.Parse(head) {
		b, err := r.ReadByte()
		if err != nil {
			return h, nil, err
		}
		head = append(head, b)
	}
	payload = make([]byte, h.Length)
	_, err = io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= h.Mask[i%4]
	}
	return h, payload, err
}

// says is an agent that sends this behind its answer, and reads on.
func says(frames string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		buf, conn := upgraded(rw)
		if conn == nil {
			return
		}
		defer conn.Close()
		buf.WriteString(frames)
		buf.Flush()
		if len(frames) > 0 && frames[0] == 'x' {
			return // it ends at once
		}
		io.Copy(io.Discard, buf)
	}
}

func closeFrame(code int, reason string) string {
	return string(wsframe.Closing{Code: code, Reason: reason}.Append(nil, false))
}
