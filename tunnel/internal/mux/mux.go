// Package mux runs yamux over one stream of a carrier, with a guard in between
// that yamux lacks.
package mux

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// Window is how much of one stream may be under way unread, in bytes.
	Window = 256 << 10
	// MaxStreams bounds the streams of one lane that live at the same time.
	MaxStreams = 1000

	backlog      = 256
	writeTimeout = 10 * time.Second
	closeTimeout = 10 * time.Second
)

// A Session multiplexes streams over one carrier stream.
type Session struct {
	yamux *yamux.Session
	guard *guard
}

// Client and Server start a Session over conn; the agent is the client.
func Client(conn io.ReadWriteCloser) (*Session, error) {
	return start(conn, yamux.Client, serverParity)
}
func Server(conn io.ReadWriteCloser) (*Session, error) {
	return start(conn, yamux.Server, clientParity)
}

func start(conn io.ReadWriteCloser, side func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error), peer parity) (*Session, error) {
	config := yamux.DefaultConfig()
	config.AcceptBacklog = backlog
	config.EnableKeepAlive = false // the tunnel pings, once for all lanes
	config.ConnectionWriteTimeout = writeTimeout
	config.MaxStreamWindowSize = Window
	config.StreamOpenTimeout = 0 // it would end the whole session; callers have deadlines
	config.StreamCloseTimeout = closeTimeout
	config.LogOutput = io.Discard
	g := newGuard(conn, peer)
	session, err := side(g, config)
	if err != nil {
		return nil, fmt.Errorf("mux: %w", err)
	}
	g.live.Store(session)
	return &Session{session, g}, nil
}

// Open opens a stream. The peer learns of it at once.
func (s *Session) Open() (*yamux.Stream, error) {
	if s.yamux.NumStreams() >= MaxStreams {
		return nil, fmt.Errorf("mux: over %d streams", MaxStreams)
	}
	return s.yamux.OpenStream()
}

// Accept returns the next stream that the peer opened.
func (s *Session) Accept(ctx context.Context) (*yamux.Stream, error) {
	return s.yamux.AcceptStreamWithContext(ctx)
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.yamux.CloseChan() }

// Err says what the guard objected to, if that ended the session.
func (s *Session) Err() error { return s.guard.objection() }

// Close ends the session and its streams.
func (s *Session) Close() error { return s.yamux.Close() }
