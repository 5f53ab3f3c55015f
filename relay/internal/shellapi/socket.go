package shellapi

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
)

// reconnected is what a client sees before what rebuilds its screen.
const reconnected = "\x1b[36m[Reconnected to existing session]\x1b[0m\r\n"

// A socket is one client's. It shows one shell at a time.
type socket struct {
	// Static after construction.
	opener  opener
	metrics *Metrics
	conn    *gateway.Conn
	user    protocol.UserID
	sandbox protocol.SandboxID
	session protocol.SessionID
	life    agentstream.Life // of what the client has asked for; ends with the socket
	use     *lifetime.Use    // of its grant; set before it is read
	closing sync.WaitGroup
	told    map[string]bool // addresses; used by the present screen alone

	mu sync.Mutex
	// Guarded by mu.
	ending bool
	grant  *jws.Grant
	token  string
	now    *showing // nil: none
}

// A showing is a shell that a socket shows.
type showing struct {
	// Static after construction.
	viewer *hub.Viewer
	screen *screen
	life   agentstream.Life
	over   chan struct{} // closed when nothing of it is left
}

func newSocket(o opener, m *Metrics, conn *gateway.Conn, c webapp.Caller) *socket {
	return &socket{
		opener: o, metrics: m, conn: conn, user: c.Grant.Subject, sandbox: c.Grant.Sandbox, session: c.Session,
		life:  agentstream.NewLife(context.Background()), // the request's context ends with the hijack
		grant: c.Grant, token: c.Token, told: map[string]bool{},
	}
}

// read does what the client asks for, one after the other, until the socket ends.
func (s *socket) read() error {
	for {
		_, data, err := s.conn.Read(context.Background()) // it ends with the connection
		if err != nil {
			return err
		}
		r, err := parse(data)
		if err != nil {
			err = s.write(outputFrame([]byte("\r\n\x1b[31mError: " + err.Error() + "\x1b[0m\r\n")))
		} else {
			err = s.take(r)
		}
		if err != nil {
			return err
		}
	}
}

// take does what one frame asks for. What comes before init, or is of no known type,
// is ignored. It fails if the socket is over.
func (s *socket) take(r request) error {
	now := s.shown()
	switch {
	case r.Type == typeInit:
		return s.init(r)
	case now == nil:
	case r.Type == typeInput && r.Data != "":
		if now.screen.over() {
			return s.complain(protocol.Errorf(protocol.KindEnded, "%s", refusedText(protocol.RefusedEnded)))
		}
		if err := now.viewer.Type(now.life, []byte(r.Data)); err != nil && now.life.Err() == nil {
			return err
		}
	case r.Type == typeResize && r.Cols > 0 && r.Rows > 0:
		now.resize(r)
	}
	return nil
}

// resize gives the shell the size of the client's window, under the rules for that.
func (now *showing) resize(r request) {
	cols, rows := r.size()
	now.viewer.Say(protocol.ClientMessage{Type: protocol.ClientResize, Cols: cols, Rows: rows})
}

// init shows the shell that a client asks for, in place of the present one.
func (s *socket) init(r request) error {
	s.hide()
	grant, token := s.bearer()
	found, err := s.opener.open(s.life, grant, token, s.session, r)
	if err != nil {
		if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok {
			return s.sendAway(elsewhere.Origin)
		}
		s.metrics.Inits.WithLabelValues(initRefused).Inc()
		return s.complain(err)
	}
	s.metrics.Inits.WithLabelValues(found.outcome).Inc()
	if found.outcome == initJoined {
		if err := s.write(outputFrame([]byte(reconnected))); err != nil {
			found.handle.Release()
			return err
		}
	}
	s.show(found.handle).resize(r)
	return nil
}

// show joins a shell.
func (s *socket) show(handle *hub.Handle) *showing {
	sink := &screen{conn: s.conn, told: s.told}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := &showing{screen: sink, life: agentstream.NewLife(s.life), over: make(chan struct{})}
	now.viewer = handle.Join(hub.Guest{Grant: s.grant, Token: s.token, Socket: sink})
	s.now = now
	go func() { // hide and over wait for it
		defer close(now.over)
		defer handle.Release()
		defer now.life.End()
		now.viewer.Serve(now.life)
		now.viewer.Leave()
	}()
	return now
}

// shown returns what is shown, nil if nothing is.
func (s *socket) shown() *showing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// hide leaves the present shell, which goes on.
func (s *socket) hide() {
	s.mu.Lock()
	now := s.now
	s.now = nil
	s.mu.Unlock()
	if now != nil {
		now.life.End()
		<-now.over
		now.screen.leave() // the hub may not have heard of it yet
	}
}

// over ends what the socket has begun. It isn't closed by anybody else any more.
func (s *socket) over() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.life.End()
	s.hide()
}

// sendAway ends the socket, as the sandbox's terminals are at another relay, and says
// where. Seed 002's client doesn't know the message: it comes again to the host that
// its page is from, and whoever leads that to a relay reads why it was closed.
func (s *socket) sendAway(origin string) error {
	s.metrics.Inits.WithLabelValues(initMoved).Inc()
	var err error
	if origin != "" {
		err = s.tell(movedMessage(origin))
	}
	s.end(protocol.KindRestarting, "the sandbox is at another relay")
	return err
}

// complain tells the client why it doesn't get what it asked for.
func (s *socket) complain(err error) error {
	return s.tell(errorMessage{protocol.AsError(err).Error()})
}

// tell sends the client a message.
func (s *socket) tell(m any) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.write(replay.AppendTextFrame(nil, data))
}

func (s *socket) write(frame []byte) error { return s.conn.WriteFrames(net.Buffers{frame}) }

// end closes the socket. It doesn't wait.
func (s *socket) end(kind protocol.Kind, cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	s.ending = true
	s.closing.Go(func() { // Serve waits for it
		s.life.End()
		s.conn.Close(kind.CloseCode(), cause)
	})
}

// grantOver ends the socket with its grant.
func (s *socket) grantOver(err error) {
	e := protocol.AsError(err)
	s.end(e.Kind, e.Error())
}

// Renew implements [access.AppSocket].
func (s *socket) Renew(grant *jws.Grant, token string) {
	if grant.Subject != s.user || grant.Sandbox != s.sandbox || !grant.Allows(s.session, "", protocol.CapView) || s.use.Renew(grant) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant, s.token = grant, token
	if s.now != nil {
		s.now.viewer.Reauth(grant, token)
	}
}

// LoggedOut implements [access.AppSocket].
func (s *socket) LoggedOut() { s.end(protocol.KindUnauthenticated, "logged out") }

// bearer returns the grant that the socket is under.
func (s *socket) bearer() (*jws.Grant, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant, s.token
}
