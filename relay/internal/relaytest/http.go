package relaytest

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// HTTP accepts in and serves requests on it as an agent does: reading and
// writing at once, with a context that ends when the relay is gone. It returns
// when the connection is closed, even if hijacked.
func HTTP(in *tunnel.Incoming, handler http.HandlerFunc) {
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return
	}
	l := &onceListener{Conn: stream, closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		defer context.AfterFunc(r.Context(), func() { l.Close() })()
		handler(w, r)
	})}
	if err := server.Serve(l); err != nil { // always fails: the listener has one connection
		<-l.closed
	}
}

// A onceListener accepts itself, once.
type onceListener struct {
	net.Conn
	accepted bool
	once     sync.Once
	closed   chan struct{}
}

func (l *onceListener) Addr() net.Addr { return l.LocalAddr() }

func (l *onceListener) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return servedConn{l.Conn, l}, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *onceListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// A servedConn closes its listener when it is closed.
type servedConn struct {
	net.Conn
	listener *onceListener
}

func (c servedConn) Close() error { return c.listener.Close() }
