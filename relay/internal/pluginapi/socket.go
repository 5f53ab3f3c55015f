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
	open := &attendance{conn: s.conn, stream: stream}
	defer context.AfterFunc(ctx, open.end)()
	if s.caller.App.ID != "" {
		defer s.apps.Attend(s.caller.App, s.caller.Grant, open)()
	}
	return s.pass(ctx, stream, from, open)
}

// An attendance is a socket that is open all the way.
type attendance struct {
	conn   net.Conn
	stream *tunnel.Stream
	out    atomic.Bool // its cookie is no longer good
}

// Renew implements [access.AppSocket]. The stream to the agent has the grant with
// which it was opened, and ends with that.
func (a *attendance) Renew(*jws.Grant, string) {}

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
	session, err := s.tunnels.Session(s.caller.Grant.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, _, err := session.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: s.caller.Token})
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	from, err := s.ask(stream)
	if !stop() && err == nil {
		err = protocol.Fault(protocol.KindUnavailable, ctx.Err())
	}
	if err != nil {
		stream.Close()
		return nil, nil, err
	}
	return stream, from, nil
}

// ask has the agent upgrade the stream.
func (s *socket) ask(stream io.ReadWriter) (*bufio.Reader, error) {
	_, err := fmt.Fprintf(stream, "GET /sessions/%s%s%s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		s.caller.Session, Path, s.name, reverseproxy.Host, pluginsocket.Upgrade)
	if err != nil {
		return nil, protocol.Fault(protocol.KindUnavailable, err)
	}
	limited := &io.LimitedReader{R: stream, N: maxAnswer}
	from := bufio.NewReaderSize(limited, wsframe.Window)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return nil, protocol.Fault(protocol.KindUpstream, err)
	}
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols:
		if resp.Header.Get("Upgrade") != pluginsocket.Upgrade {
			return nil, protocol.Errorf(protocol.KindUpstream, "the agent upgraded to something else")
		}
		limited.N = math.MaxInt64
		return from, nil
	case protocol.KindForbidden.Status():
		return nil, protocol.Fault(protocol.KindForbidden, nil)
	case protocol.KindTooMany.Status():
		return nil, protocol.Fault(protocol.KindTooMany, nil)
	}
	return nil, protocol.Errorf(protocol.KindUpstream, "the agent answered %d", resp.StatusCode)
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
