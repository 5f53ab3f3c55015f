package controlplane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
)

const (
	shutdownGrace = 5 * time.Second // for requests under way
	cutOffGrace   = time.Second     // for those that had to be ended
)

// Run serves until ctx ends, gives requests under way some seconds, and closes
// everything that [New] opened.
func (s *Server) Run(ctx context.Context) error {
	s.logger.Info("control plane ready", "url", s.URL(), "tls", s.TLSAddr(), "admin", s.AdminURL(),
		"kid", s.keys.Signer().Kid(), "revision", s.revision)
	failed := make(chan error, 3) // one for each server
	serve := func(l net.Listener, srv *http.Server) *http.Server {
		go func() { failed <- intake.Serve(srv, l, nil) }() // awaited at the end of Run
		return srv
	}
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var workers sync.WaitGroup // awaited at the end of Run
	workers.Go(func() { s.usage.Run(work) })
	workers.Go(func() { s.spread.Run(work) })
	workers.Go(func() { s.keys.Run(work) })
	if hook := s.notices.Webhook; hook != nil {
		workers.Go(func() { hook.Run(work) })
	}
	servers := []*http.Server{serve(s.public, s.web.NewHTTPServer(s.handler()))}
	if s.agents != nil {
		servers = append(servers, serve(s.agents, s.web.NewHTTPServer(s.agentHandler())))
	}
	if s.admin != nil { // the last to end
		servers = append(servers, serve(s.admin, s.newAdminServer()))
	}

	var err error
	running := len(servers)
	select {
	case <-ctx.Done():
	case err = <-failed:
		running--
	}
	s.shutdown(servers)
	for range running {
		if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	stopWork()
	workers.Wait()
	return errors.Join(err, s.closeResources())
}

// shutdown ends the servers: it waits for the requests under way, then ends
// those that wait for a sandbox, and at last cuts off what is left.
func (s *Server) shutdown(servers []*http.Server) {
	for _, grace := range []time.Duration{shutdownGrace, cutOffGrace} {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		for _, srv := range servers {
			if err := srv.Shutdown(ctx); err != nil {
				s.logger.Warn("requests still under way", "error", err)
			}
		}
		cancel()
		s.close()
	}
	for _, srv := range servers {
		if err := srv.Close(); err != nil {
			s.logger.Warn("closing a listener", "error", err)
		}
	}
}
