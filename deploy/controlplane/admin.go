package controlplane

import (
	"net/http"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// adminHandler serves operators: health, readiness, metrics and profiles. It
// asks nobody who they are, so the listener must not be in everybody's reach.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	instrument.Routes(mux, s.registry())
	handle := func(pattern string, serve handlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(revisionHeader, s.revision)
			w.Header().Set("Cache-Control", "no-store")
			if err := serve(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	handle("GET /healthz", func(w http.ResponseWriter, _ *http.Request) error { // it lives, whatever its database does
		return s.write(w, http.StatusOK, struct {
			Status string `json:"status"`
			revised
		}{"ok", s.stamp()})
	})
	handle("GET /readyz", s.getReadiness)
	return instrument.GuardNames(s.admin.Addr(), mux)
}

// newAdminServer returns a server for operators, who may ask for a profile of any
// length.
func (s *Server) newAdminServer() *http.Server {
	server := s.newHTTPServer(s.adminHandler())
	server.WriteTimeout = 0
	return server
}

// getReadiness says whether requests can be answered now.
func (s *Server) getReadiness(w http.ResponseWriter, r *http.Request) error {
	if s.closing.Err() != nil {
		return protocol.Errorf(protocol.KindUnavailable, "shutting down")
	}
	return s.getHealth(w, r)
}

// AdminURL returns the URL of the admin listener, empty if there is none.
func (s *Server) AdminURL() string {
	if s.admin == nil {
		return ""
	}
	return "http://" + s.admin.Addr().String()
}
