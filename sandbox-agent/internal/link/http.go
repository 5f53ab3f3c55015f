package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/tunnel"
)

// maxHeaderBytes bounds the header of a request.
const maxHeaderBytes = 64 << 10

var _ route.Life = (*lifetime.Use)(nil)

// routes are what relays may ask over HTTP, for all tunnels.
type routes struct {
	once    sync.Once
	handler http.Handler // set by once
}

// handler serves what relays may ask over HTTP.
func (l *Link) handler() http.Handler {
	l.routes.once.Do(func() {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /sessions/{sid}/ptys", l.listPTYs)
		mux.HandleFunc("GET /sessions/{sid}/agent", l.sessionAgent)
		mux.HandleFunc("GET /sessions/{sid}/recordings", l.listRecordings)
		mux.HandleFunc("GET /sessions/{sid}/recordings/{rid}", l.readRecording)
		l.routes.handler = mux
		for _, service := range l.Services {
			service.Routes(mux)
			if f, ok := service.(feature.Front); ok {
				l.routes.handler = f.Front(l.routes.handler)
			}
		}
	})
	return l.routes.handler
}

// viewer returns the session of a request and the grant under which it came. It
// answers the request itself when the grant doesn't allow to view the session.
func viewer(w http.ResponseWriter, r *http.Request) (protocol.SessionID, *jws.Grant, bool) {
	session := protocol.SessionID(r.PathValue("sid"))
	grant := route.GrantOf(r)
	if !grant.Allows(session, "", protocol.CapView) {
		reply.Error(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session"))
		return "", nil, false
	}
	return session, grant, true
}

// listPTYs is GET /sessions/{sid}/ptys.
func (l *Link) listPTYs(w http.ResponseWriter, r *http.Request) {
	session, grant, ok := viewer(w, r)
	if !ok {
		return
	}
	list := protocol.PTYList{PTYs: []protocol.PTYInfo{}, Revision: l.Revision}
	for _, info := range l.Host.List(session) {
		if grant.Allows(session, info.ID, protocol.CapView) {
			list.PTYs = append(list.PTYs, info)
		}
	}
	reply.JSON(w, http.StatusOK, list)
}

// sessionAgent is GET /sessions/{sid}/agent: the state of the agent that belongs
// to the session itself, 404 when there is none.
func (l *Link) sessionAgent(w http.ResponseWriter, r *http.Request) {
	session, grant, ok := viewer(w, r)
	if !ok {
		return
	}
	id := protocol.SessionAgent(session)
	for _, info := range l.Host.List(session) {
		if info.ID == id && info.Exited == nil && info.Agent != nil && grant.Allows(session, id, protocol.CapView) {
			reply.JSON(w, http.StatusOK, protocol.SessionAgentInfo{ID: id, State: info.Agent.State})
			return
		}
	}
	reply.Error(w, protocol.Errorf(protocol.KindNotFound, "the session has no agent of its own"))
}

// listRecordings is GET /sessions/{sid}/recordings.
func (l *Link) listRecordings(w http.ResponseWriter, r *http.Request) {
	session, grant, ok := viewer(w, r)
	if !ok {
		return
	}
	list := protocol.RecordingList{}
	for _, info := range l.Recordings.List(session) {
		if grant.Allows(session, info.PTYID, protocol.CapView) {
			list.Recordings = append(list.Recordings, info)
		}
	}
	reply.JSON(w, http.StatusOK, list)
}

// readRecording is GET /sessions/{sid}/recordings/{rid}. It sends one that runs
// as far as it is written.
func (l *Link) readRecording(w http.ResponseWriter, r *http.Request) {
	session, grant, ok := viewer(w, r)
	if !ok {
		return
	}
	content, err := l.Recordings.Read(session, r.PathValue("rid"))
	if err != nil {
		reply.Error(w, err)
		return
	}
	defer content.Close()
	if !grant.Allows(session, content.Info.PTYID, protocol.CapView) {
		reply.Error(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal"))
		return
	}
	// What a sandbox wrote is never shown as a page.
	w.Header().Set("Content-Type", "application/x-asciicast")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", content.Info.ID+".cast"))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox")
	http.ServeContent(w, r, "", content.Modified, content)
}

// idleStream is how long a stream may be without a request. A relay closes it
// sooner, so that none comes just then.
const idleStream = 60 * time.Second

// http serves HTTP/1.1 requests, one after the other, on one stream, for as long
// as the stream's grant is good. It returns when nothing is done with the stream any more, be it
// by a handler that took it over.
func (l *Link) http(ctx context.Context, in *tunnel.Incoming, handler http.Handler) error {
	grant, err := l.terminals().Grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	ctx, use, stop := l.Grants.Renewable(ctx, grant)
	defer stop()
	if use != nil { // else ctx has ended
		ctx = route.WithLife(ctx, use)
	}
	return l.serveOne(ctx, in, handler, &http.Server{
		IdleTimeout: idleStream,
		BaseContext: func(net.Listener) context.Context { return route.WithGrant(ctx, grant) },
	})
}

// serveOne has server serve one stream, until ctx ends. It returns when nothing is
// done with the stream any more.
func (l *Link) serveOne(ctx context.Context, in *tunnel.Incoming, handler http.Handler, server *http.Server) error {
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return err
	}
	conn := newOneConn(stream)
	defer conn.Conn.Close()
	server.Handler, server.ConnState = conn.serving(handler), conn.state
	server.ReadHeaderTimeout, server.MaxHeaderBytes = 10*time.Second, maxHeaderBytes
	server.ErrorLog = slog.NewLogLogger(l.Log.Handler(), slog.LevelDebug)
	end := context.AfterFunc(ctx, func() {
		server.Close()
		conn.Conn.Close() // also one that the server has not noted yet, or has given away
	})
	defer end()
	err = server.Serve(conn)
	conn.wait()
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const (
	// maxSealed bounds the streams of kind sync that are served at the same time: a
	// relay lets as many through, and others than relays can't open any.
	maxSealed = 64
	// sealedTime bounds such a stream: a body of 32 MiB at the least rate that a relay
	// lets through takes some nine minutes.
	sealedTime = 10 * time.Minute
)

// sync serves one request on a stream that has no grant. Whoever sends it proves
// by its seal alone that they may.
func (l *Link) sync(ctx context.Context, in *tunnel.Incoming) error {
	if l.Sync == nil || in.Open.Grant != "" || in.Open.Command != "" {
		return in.Refuse(protocol.Errorf(protocol.KindUnsupported, "a relay opens no such %q streams", string(in.Open.Kind)))
	}
	defer l.sealed.Add(-1)
	if l.sealed.Add(1) > maxSealed {
		return in.Refuse(protocol.Errorf(protocol.KindTooMany, "over %d sealed bodies at once", maxSealed))
	}
	ctx, cancel := context.WithTimeout(ctx, sealedTime)
	defer cancel()
	server := &http.Server{BaseContext: func(net.Listener) context.Context { return ctx }}
	server.SetKeepAlivesEnabled(false) // one request
	return l.serveOne(ctx, in, l.Sync, server)
}

// A oneConn is a listener that accepts one connection, and then waits until
// that is served.
type oneConn struct {
	// Static after construction.
	Conn   *closeNoter
	served chan struct{} // closed when the server is done with Conn
	over   chan struct{} // closed by Close
	once   sync.Once     // of over

	accepted bool           // used by the goroutine that calls Accept
	handling sync.WaitGroup // handlers that run
	taken    bool           // a handler has taken Conn over; used by the server's goroutine until served
}

func newOneConn(c net.Conn) *oneConn {
	return &oneConn{
		Conn: &closeNoter{Conn: c, closed: make(chan struct{})}, served: make(chan struct{}), over: make(chan struct{}),
	}
}

// serving returns next as it is served on the connection: it may read and write
// at the same time, and its context ends with the grant and when the peer is
// gone, and with that also what it writes. An answer that was under way then
// doesn't pass for a whole one.
func (l *oneConn) serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.handling.Add(1)
		defer l.handling.Done()
		http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1: it can
		defer context.AfterFunc(r.Context(), func() { l.Conn.Close() })()
		next.ServeHTTP(w, r)
		readRest(r)
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
	})
}

// maxUnread is how much a handler may leave unread of a body; behind more the
// server closes the connection.
const maxUnread = 256 << 10

// readRest reads what a handler has left of a body. A server that may answer before
// a body's end doesn't expect that end behind the answer: it would take the next
// request for a part of it, and close the connection. A body that the client holds
// back until it is asked for isn't asked for: that connection is closed.
func readRest(r *http.Request) {
	if r.ContentLength <= maxUnread && r.Header.Get("Expect") == "" {
		io.CopyN(io.Discard, r.Body, maxUnread) // the connection is closed if it fails
	}
}

// state follows the server: a connection that a handler has taken over isn't the
// server's any more.
func (l *oneConn) state(_ net.Conn, state http.ConnState) {
	if state == http.StateHijacked {
		l.taken = true
	}
	if state == http.StateHijacked || state == http.StateClosed {
		close(l.served)
	}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.Conn, nil
	}
	select {
	case <-l.served:
	case <-l.over:
	}
	return nil, net.ErrClosed
}

// wait waits until nothing is done with an accepted connection.
func (l *oneConn) wait() {
	if !l.accepted {
		return
	}
	<-l.served
	if l.taken {
		<-l.Conn.closed
	}
	l.handling.Wait()
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.Conn.LocalAddr() }

// A closeNoter is a connection that says when it was closed.
type closeNoter struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// ReadFrom implements [io.ReaderFrom]: net/http copies files by it.
func (c *closeNoter) ReadFrom(r io.Reader) (int64, error) { return tunnel.Copy(c.Conn, r) }

func (c *closeNoter) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}
