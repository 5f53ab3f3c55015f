// Package mux runs yamux over one stream of a carrier, with a guard against
// hostile peers in between.
package mux

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// Window bounds the unread bytes of one stream, unless its session lets windows
	// grow: a smaller one is 5 MB/s at most at 50 ms, with 256 KiB, and a larger one
	// only fills the queues of thin lines.
	Window = 1 << 20
	// MaxStreams bounds the streams of one lane that live at the same time.
	MaxStreams = 1000

	backlog      = 256
	closeTimeout = 10 * time.Second
)

// WriteTimeout is how long a write to the carrier may block. PINGs notice a
// lost path long before; this is for a peer that stops reading. It is a
// variable so that tests can lower it.
var WriteTimeout = 30 * time.Second

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
	config.EnableKeepAlive = false // the tunnel sends PINGs, once for all lanes
	config.ConnectionWriteTimeout = WriteTimeout
	config.MaxStreamWindowSize = yamuxWindow
	config.StreamOpenTimeout = 0 // it would end the whole session; callers have deadlines
	config.StreamCloseTimeout = closeTimeout
	config.LogOutput = io.Discard
	g := newGuard(conn, peer)
	session, err := side(&wire{guard: g}, config)
	if err != nil {
		return nil, fmt.Errorf("mux: %w", err)
	}
	g.live.Store(session)
	return &Session{yamux: session, guard: g}, nil
}

// Open opens a stream, of which the peer learns at once. [ErrStuck] means that
// the session is useless.
func (s *Session) Open() (*Stream, error) {
	if s.yamux.NumStreams() >= MaxStreams {
		return nil, fmt.Errorf("mux: over %d streams", MaxStreams)
	}
	raw, err := s.yamux.OpenStream()
	if err != nil {
		return nil, stuck(err)
	}
	return s.stream(raw), nil
}

// Accept returns the next stream that the peer opened.
func (s *Session) Accept(ctx context.Context) (*Stream, error) {
	raw, err := s.yamux.AcceptStreamWithContext(ctx)
	if err != nil {
		if bad := judge(err); bad != nil {
			s.guard.object(bad)
		}
		return nil, stuck(err)
	}
	return s.stream(raw), nil
}

// Grow has windows of streams begin small and grow with what is read in some round
// trips of the path, which knows the shortest. It is called before there are
// streams.
func (s *Session) Grow(path Path) { s.guard.grow(path) }

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.yamux.CloseChan() }

// Err returns the *Objection that ended the session, if one did.
func (s *Session) Err() error {
	if bad := s.guard.objection(); bad != nil {
		return bad
	}
	return nil
}

// ending reports whether the session is ending, and waits until it has.
func (s *Session) ending() bool {
	if !s.guard.drying.Load() {
		return false
	}
	<-s.guard.dry
	s.yamux.Close() // waits for an earlier Close
	return true
}

// Close ends the session and its streams.
func (s *Session) Close() error {
	s.guard.shut()
	return s.yamux.Close()
}
