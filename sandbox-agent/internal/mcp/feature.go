package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

var _ interface {
	feature.Router
	feature.Starter
	feature.Ender
	feature.SessionEnder
	feature.Runner
	io.Closer
	prometheus.Collector
} = (*Server)(nil)

// credentials are those of the terminals that run or are about to.
type credentials struct {
	// Static after construction.
	at string // the listener's origin

	// Guarded by mu.
	mu    sync.Mutex
	byPTY map[protocol.PTYID]protocol.MCPCredentials
}

// of returns a terminal's credentials, which it makes if missing.
func (c *credentials) of(session protocol.SessionID, pty protocol.PTYID) protocol.MCPCredentials {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.byPTY[pty]
	if !ok || known.SessionID != session {
		known = protocol.MCPCredentials{
			URL: c.at + "/sessions/" + string(session) + "/mcp", SessionID: session, PTYID: pty, Secret: rand.Text(),
		}
		c.byPTY[pty] = known
	}
	return known
}

// secret returns a terminal's secret, false if there is no such terminal.
func (c *credentials) secret(session protocol.SessionID, pty protocol.PTYID) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.byPTY[pty]
	return known.Secret, ok && known.SessionID == session
}

func (c *credentials) forget(pty protocol.PTYID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPTY, pty)
}

// TerminalStarts implements [feature.Starter].
func (s *Server) TerminalStarts(start *feature.Start) error {
	c := s.known.of(start.Session, start.PTY)
	start.Credentials = &c
	return nil
}

// TerminalEnded implements [feature.Ender].
func (s *Server) TerminalEnded(t feature.Terminal) {
	s.known.forget(t.PTY)
	s.Ended(t.Session, t.PTY)
}

// SessionEnded implements [feature.SessionEnder].
func (s *Server) SessionEnded(session protocol.SessionID) error {
	s.Ended(session, "")
	return nil
}

func loopbackServer(handler http.Handler) *http.Server {
	from := func(r *http.Request) netip.Addr { return intake.Address(r, false) }
	return &http.Server{
		Handler:           intake.NewBodies(from, nil).Handler(handler),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
}

// Run implements [feature.Runner]: it serves the listener until ctx ends.
func (s *Server) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if err := intake.Serve(s.loopback, s.bounded(s.opts.Listener), nil); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Log.Error("the listener for tools has ended", "err", err)
		}
	})
	<-ctx.Done()
	s.loopback.Close()
}
