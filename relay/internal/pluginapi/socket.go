package pluginapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
)

// Path is what comes before a plugin's name.
const Path = "/plugin-ws/"

// socketsPath is what comes before a socket's handle, at the agent.
const socketsPath = "/plugin-sockets/"

const (
	// openTimeout bounds the way to the agent, its answer included.
	openTimeout = 10 * time.Second
	// maxAnswer bounds the header of that answer, in bytes.
	maxAnswer = 64 << 10
	// closeTimeout is how long the agent may take to end a stream after the Close
	// frame; it waits for the other side's.
	closeTimeout = 10 * time.Second
	// lastWords bounds writing a Close frame, and reading on so that it arrives.
	lastWords = time.Second
	// copyBytes is the size of the buffer through which a client's frames pass.
	copyBytes = 32 << 10
)

// closing returns what a Close frame of kind says: reason, or else the kind's text.
func closing(kind protocol.Kind, reason string) wsframe.Closing {
	if reason == "" {
		reason = kind.Text()
	}
	return wsframe.Closing{Code: kind.CloseCode(), Reason: reason}
}

var (
	invalidName = closing(protocol.KindInvalid, pluginsocket.InvalidName)
	broken      = closing(protocol.KindUpstream, pluginsocket.Upstream)
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// A way is what leads sockets to sandboxes.
type way struct {
	tunnels  Tunnels
	requests *reverseproxy.Requests
	apps     *access.AppSessions
	metrics  *Metrics
	log      *slog.Logger
}

// A socket is one client's.
type socket struct {
	// Static after construction.
	way
	conn   net.Conn
	caller webapp.Caller
	name   string
	handle string // the agent's name for it, that nobody else knows

	torn bool // a write to the client has failed, perhaps within a frame; owned by whoever runs it
}

// run serves the socket until it ends.
func (s *socket) run() {
	s.metrics.Open.Inc()
	defer s.metrics.Open.Dec()
	said := s.lead()
	s.metrics.closed(said.Code)
	s.end(said)
}

// lead leads the client to its plugin, and returns what it is to be told at last.
func (s *socket) lead() wsframe.Closing {
	if !pluginsocket.ValidName(s.name) {
		return invalidName
	}
	ctx, request, err := s.requests.Begin(context.Background(), s.caller.Grant)
	if err != nil {
		return s.because(err)
	}
	defer request.End()
	request.Endless()
	stream, from, err := s.reach(ctx)
	if err != nil {
		return s.because(first(context.Cause(ctx), err))
	}
	defer stream.Close()
	open := &attendance{conn: s.conn, stream: stream, newer: make(chan renewal, 1)}
	defer context.AfterFunc(ctx, open.end)()
	if s.caller.App.ID != "" {
		ctx, cancel := context.WithCancel(ctx)
		var renewing sync.WaitGroup
		renewing.Go(func() { s.renewals(ctx, request, open.newer) })
		defer renewing.Wait()
		defer cancel()
		defer s.apps.Attend(s.caller.App, s.caller.Grant, open)()
	}
	return s.pass(ctx, stream, from, open)
}

// renewals has the socket go on under newer grants until ctx ends: here, and at the
// agent, which decides for itself.
func (s *socket) renewals(ctx context.Context, request *reverseproxy.Request, newer <-chan renewal) {
	for {
		var next renewal
		select {
		case next = <-newer:
		case <-ctx.Done():
			return
		}
		if !next.grant.Allows(s.caller.Session, "", protocol.CapPlugins) {
			continue // it ends with the grant that it has
		}
		err := request.Renew(next.grant)
		if err == nil {
			err = s.tell(ctx, next)
		}
		if err != nil {
			s.log.Debug("plugin socket not renewed", "err", err)
		}
	}
}

// tell shows the agent a newer grant for the socket.
func (s *socket) tell(ctx context.Context, next renewal) error {
	stream, got, err := s.request(ctx, next.token, http.MethodPut, socketsPath+s.handle, "")
	if err != nil {
		return err
	}
	defer stream.Close()
	if got.status != http.StatusNoContent {
		return protocol.Errorf(protocol.KindUpstream, "the agent answered %d", got.status)
	}
	return nil
}

// A renewal is a newer grant.
type renewal struct {
	grant *jws.Grant
	token string
}

// An attendance is a socket that is open all the way.
type attendance struct {
	conn   net.Conn
	stream *tunnel.Stream
	newer  chan renewal
	out    atomic.Bool // its cookie is no longer good
}

// Renew implements [access.AppSocket]. Of grants that come in quick succession the
// first is good for long enough.
func (a *attendance) Renew(grant *jws.Grant, token string) {
	select {
	case a.newer <- renewal{grant, strings.Clone(token)}:
	default:
	}
}

// LoggedOut implements [access.AppSocket].
func (a *attendance) LoggedOut() {
	a.out.Store(true)
	a.end()
}

// end ends what is passed on, also a write under way.
func (a *attendance) end() {
	a.stream.Close()
	a.conn.SetWriteDeadline(time.Now().Add(lastWords))
}

// first returns the first error that there is.
func first(cause, err error) error {
	if cause != nil {
		return cause
	}
	return err
}

// because returns what is said of err.
func (s *socket) because(err error) wsframe.Closing {
	kind := protocol.KindOf(err)
	s.log.Debug("plugin socket ends", "kind", kind, "err", err)
	if kind == protocol.KindUpstream || kind == protocol.KindInternal {
		return broken
	}
	return closing(kind, "")
}

// reach asks the agent for the plugin's frames.
func (s *socket) reach(ctx context.Context) (*tunnel.Stream, *bufio.Reader, error) {
	stream, got, err := s.request(ctx, s.caller.Token, http.MethodGet, Path+s.name,
		"Connection: Upgrade\r\nUpgrade: "+pluginsocket.Upgrade+"\r\n"+pluginsocket.Handle+": "+s.handle+"\r\n")
	if err != nil {
		return nil, nil, err
	}
	switch {
	case got.status == http.StatusSwitchingProtocols && got.upgrade == pluginsocket.Upgrade:
		return stream, got.from, nil
	case got.status == protocol.KindForbidden.Status():
		err = protocol.Fault(protocol.KindForbidden, nil)
	case got.status == protocol.KindTooMany.Status():
		err = protocol.Fault(protocol.KindTooMany, nil)
	default:
		err = protocol.Errorf(protocol.KindUpstream, "the agent answered %d", got.status)
	}
	stream.Close()
	return nil, nil, err
}

// An answered is the agent's answer, and what comes behind it.
type answered struct {
	status  int
	upgrade string
	from    *bufio.Reader
}

// request asks the agent under a grant, on a stream that is then the caller's.
func (s *socket) request(ctx context.Context, token, method, path, header string) (*tunnel.Stream, answered, error) {
	session, err := s.tunnels.Session(s.caller.Grant.Sandbox)
	if err != nil {
		return nil, answered{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, _, err := session.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
	if err != nil {
		return nil, answered{}, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	got, err := ask(stream, fmt.Sprintf("%s /sessions/%s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, s.caller.Session, path, reverseproxy.Host, header))
	if !stop() && err == nil {
		err = protocol.Fault(protocol.KindUnavailable, ctx.Err())
	}
	if err != nil {
		stream.Close()
		return nil, answered{}, err
	}
	return stream, got, nil
}

// ask sends a request and reads the answer's header.
func ask(stream io.ReadWriter, request string) (answered, error) {
	if _, err := io.WriteString(stream, request); err != nil {
		return answered{}, protocol.Fault(protocol.KindUnavailable, err)
	}
	limited := &io.LimitedReader{R: stream, N: maxAnswer}
	from := bufio.NewReaderSize(limited, wsframe.Window)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return answered{}, protocol.Fault(protocol.KindUpstream, err)
	}
	limited.N = math.MaxInt64
	return answered{resp.StatusCode, resp.Header.Get("Upgrade"), from}, nil
}

// pass passes frames on both ways until both are over. The client's aren't looked
// at: the agent checks them. The agent's come in whole pieces, so that whatever
// happens the client can be told.
func (s *socket) pass(ctx context.Context, stream *tunnel.Stream, from *bufio.Reader, open *attendance) wsframe.Closing {
	up := make(chan struct{})
	go func() { // pass waits for it
		defer close(up)
		counted := &counter{stream, s.metrics.up}
		io.CopyBuffer(counted, onlyReader{s.conn}, make([]byte, copyBytes))
		stream.Close() // the client is gone, or the agent
	}()
	down := wsframe.Carrier{
		From: from, To: &counter{s, s.metrics.down},
		Rule: wsframe.Rule{Frame: pluginsocket.MaxPiece, Most: pluginsocket.MaxMessage},
	}
	said, err := down.Carry()
	switch {
	case err == nil: // said has passed
		s.torn = true
		stream.SetReadDeadline(time.Now().Add(closeTimeout))
		io.Copy(io.Discard, from)
	case errors.As(err, new(*wsframe.WriteError)):
		said = wsframe.Closing{}
	case open.out.Load():
		said = closing(protocol.KindUnauthenticated, "logged out")
	case context.Cause(ctx) != nil:
		said = s.because(context.Cause(ctx))
	case errors.As(err, new(*wsframe.Fault)), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		said = broken
	default:
		said = closing(protocol.KindUnavailable, "") // the tunnel is lost
	}
	stream.Close()
	s.say(said)
	s.conn.SetReadDeadline(time.Now().Add(lastWords))
	<-up
	return said
}

// Write writes whole frames to the client.
func (s *socket) Write(frames []byte) (int, error) {
	n, err := s.conn.Write(frames)
	if err != nil {
		s.torn = true
	}
	return n, err
}

// say sends a Close frame, unless the client has one or a part of a frame.
func (s *socket) say(c wsframe.Closing) {
	if s.torn {
		return
	}
	s.torn = true
	s.conn.SetWriteDeadline(time.Now().Add(lastWords))
	s.conn.Write(c.Append(nil, false))
}

// end ends the socket: c is said if nothing was yet. It reads on for a moment, as
// a connection that is closed with something unread is reset, and the Close frame
// lost.
func (s *socket) end(c wsframe.Closing) {
	s.say(c)
	under := s.conn
	if half, ok := under.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	s.conn.SetReadDeadline(time.Now().Add(lastWords))
	io.CopyN(io.Discard, s.conn, 4*pluginsocket.MaxMessage)
	s.conn.Close()
}

// onlyReader hides what else a connection can do, so that a copy uses its buffer.
type onlyReader struct{ io.Reader }
