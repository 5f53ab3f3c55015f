package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

type grantKey struct{}

// handler serves what relays may ask over HTTP.
func (l *Link) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sessions/{sid}/ptys", l.listPTYs)
	mux.HandleFunc("GET /sessions/{sid}/recordings", l.listRecordings)
	mux.HandleFunc("GET /sessions/{sid}/recordings/{rid}", l.readRecording)
	return mux
}

// viewer returns the session of a request and the grant under which it came. It
// answers the request itself when the grant doesn't allow to view the session.
func viewer(w http.ResponseWriter, r *http.Request) (protocol.SessionID, *jws.Grant, bool) {
	session := protocol.SessionID(r.PathValue("sid"))
	grant := r.Context().Value(grantKey{}).(*jws.Grant)
	if !grant.Allows(session, "", protocol.CapView) {
		writeError(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session"))
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
	writeJSON(w, http.StatusOK, list)
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
	writeJSON(w, http.StatusOK, list)
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
		writeError(w, err)
		return
	}
	defer content.Close()
	if !grant.Allows(session, content.Info.PTYID, protocol.CapView) {
		writeError(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal"))
		return
	}
	// What a sandbox wrote is never shown as a page.
	w.Header().Set("Content-Type", "application/x-asciicast")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", content.Info.ID+".cast"))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox")
	http.ServeContent(w, r, "", content.Modified, content)
}

// http serves one HTTP/1.1 request on one stream, under the stream's grant. It
// returns when the request's goroutine has ended.
func (l *Link) http(ctx context.Context, in *tunnel.Incoming, handler http.Handler) error {
	grant, err := l.grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return err
	}
	defer stream.Close()
	listener := newOneConn(stream)
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(ctx, grantKey{}, grant) },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				close(listener.served)
			}
		},
		ErrorLog: slog.NewLogLogger(l.Log.Handler(), slog.LevelDebug),
	}
	// A second request could come after the grant's end.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() {
		server.Close()
		stream.Close() // also one that the server has not noted yet
	})
	defer stop()
	err = server.Serve(listener)
	listener.wait()
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A oneConn is a listener that accepts one connection, and then waits until
// that is served.
type oneConn struct {
	conn     net.Conn
	accepted bool          // used by the goroutine that calls Accept
	served   chan struct{} // closed when nothing is done with conn any more
	once     sync.Once
	over     chan struct{} // closed by Close
}

func newOneConn(c net.Conn) *oneConn {
	return &oneConn{conn: c, served: make(chan struct{}), over: make(chan struct{})}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	select {
	case <-l.served:
	case <-l.over:
	}
	return nil, net.ErrClosed
}

// wait waits until an accepted connection is served.
func (l *oneConn) wait() {
	if l.accepted {
		<-l.served
	}
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

func writeError(w http.ResponseWriter, err error) {
	e := protocol.AsError(err)
	writeJSON(w, e.Kind.Status(), map[string]protocol.ErrorBody{"error": e.Body()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
