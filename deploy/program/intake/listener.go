package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Serve is server.Serve, but answers requests of ambiguous length with 400 and
// closes their connection. It also closes it after a body with a
// Transfer-Encoding. refused, which may be nil, is called for each refusal.
//
// A handler that hijacks a connection gets the original with [Raw].
func Serve(server *http.Server, l net.Listener, refused func(error)) error {
	if refused == nil {
		refused = func(error) {}
	}
	next, outer, known := server.Handler, server.ConnContext, server.ConnState
	server.DisableGeneralOptionsHandler = true // it would bypass our handler
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if outer != nil {
			ctx = outer(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if conn, ours := c.(*conn); ours && state == http.StateHijacked {
			conn.taken.Store(true)
		}
		if known != nil {
			known(c, state)
		}
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ours := r.Context().Value(connKey{}).(*conn); ours {
			c.begin(w, r)
		}
		next.ServeHTTP(w, r)
	})
	return server.Serve(listener{l, refused})
}

// Raw returns the TCP or TLS connection below one that was hijacked from a
// server of [Serve]. Nothing is buffered above it.
func Raw(c net.Conn) net.Conn {
	if ours, ok := c.(*conn); ok {
		return ours.Conn
	}
	return c
}

type connKey struct{}

type listener struct {
	net.Listener
	refused func(error)
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	next := &conn{Conn: c, refused: l.refused, framing: newFraming()}
	next.secured, _ = c.(*tls.Conn)
	return next, nil
}

// spoil follows the good part of a refused header: a line that no header may
// contain. So net/http answers 400 in its turn.
const spoil = "\x00\r\n\r\n"

const (
	// lingerTime and lingerBytes bound what is read and dropped after a refusal.
	// Closing a connection with unread data resets it, and the answer may be lost.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// A conn checks the framing of its requests.
type conn struct {
	net.Conn
	secured *tls.Conn // the same; nil without TLS
	refused func(error)

	taken  atomic.Bool // it was hijacked
	spoilt atomic.Bool // no more input counts

	// Owned by whoever reads.
	framing framing
	rest    string // the rest of spoil, once spoilt

	// Owned by the requests, one after the other.
	last  bool // this request is the last
	state *tls.ConnectionState
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if c.spoilt.Load() {
		return c.spoil(p)
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.taken.Load() {
		sound, refusal := c.framing.pass(p[:n])
		if refusal != nil {
			c.refused(refusal)
			c.rest = spoil
			c.spoilt.Store(true)
			if sound == 0 {
				return c.spoil(p)
			}
			return sound, nil
		}
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil {
		io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis is an HTTPS server.\n")
	}
	return n, err
}

func (c *conn) spoil(p []byte) (int, error) {
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.spoilt.Load() {
		c.CloseWrite() // where possible
		c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// CloseWrite ends the output alone. net/http uses it so that a client can still
// read its answer.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection below, and below TLS like [tls.Conn]'s.
func (c *conn) NetConn() net.Conn {
	if c.secured != nil {
		return c.secured.NetConn()
	}
	return c.Conn
}

// begin notes a request and sets on it what net/http sets only for connections
// of known types.
func (c *conn) begin(w http.ResponseWriter, r *http.Request) {
	if c.last { // impossible: the last answer closes the connection
		panic(http.ErrAbortHandler)
	}
	if len(r.TransferEncoding) > 0 {
		c.last = true
		w.Header().Set("Connection", "close")
	}
	if c.secured == nil {
		return
	}
	if c.state == nil {
		state := c.secured.ConnectionState()
		c.state = &state
	}
	r.TLS = c.state
}
