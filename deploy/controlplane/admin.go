package controlplane

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// adminHandler serves operators: health, readiness, metrics and profiles. It
// asks nobody who they are, so the listener must not be in everybody's reach.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	instrument.Routes(mux, s.registry())
	mux.HandleFunc("GET /healthz", s.web.Plain(func(w *web.Writer, _ *http.Request) error { // it lives, whatever its database does
		return w.JSON(http.StatusOK, healthy)
	}))
	mux.HandleFunc("GET /readyz", s.web.Plain(s.getReadiness))
	return instrument.GuardNames(s.admin.Addr(), mux)
}

// newAdminServer returns a server for operators, who may ask for a profile of any
// length.
func (s *Server) newAdminServer() *http.Server {
	server := s.web.NewHTTPServer(s.adminHandler())
	server.WriteTimeout = 0
	return server
}

// getReadiness says whether requests can be answered now.
func (s *Server) getReadiness(w *web.Writer, r *http.Request) error {
	if s.closing.Err() != nil {
		return protocol.Errorf(protocol.KindUnavailable, "shutting down")
	}
	return s.getHealth(w, r)
}

// healthTimeout is how long the database may take to answer a probe.
const healthTimeout = time.Second

var healthy = struct {
	Status string `json:"status"`
}{"ok"}

// getHealth says whether requests can be answered: not while the database can't
// be asked.
func (s *Server) getHealth(w *web.Writer, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if err := s.store.Ping(ctx); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return w.JSON(http.StatusOK, healthy)
}

// AdminURL returns the URL of the admin listener, empty if there is none.
func (s *Server) AdminURL() string {
	if s.admin == nil {
		return ""
	}
	return "http://" + s.admin.Addr().String()
}
