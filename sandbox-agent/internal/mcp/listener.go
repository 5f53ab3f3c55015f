package mcp

import (
	"net"
	"sync"
	"sync/atomic"
)

// maxConns bounds the connections to the loopback listener. Any program of the
// sandbox may open them before it shows a secret, and the agent needs
// descriptors for other things too.
const maxConns = 2048

// bounded returns l limited to maxConns connections, enough for all callers. It
// closes further ones as they arrive.
func (s *Server) bounded(l net.Listener) net.Listener {
	return &boundedListener{Listener: l, server: s}
}

type boundedListener struct {
	net.Listener
	server *Server
	open   atomic.Int64
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= maxConns {
			return &boundedConn{Conn: conn, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		l.server.metrics.refused.WithLabelValues(refusedLimit).Inc()
		conn.Close()
	}
}

// A boundedConn counts until it is closed.
type boundedConn struct {
	net.Conn
	closed func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}
