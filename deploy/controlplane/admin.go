package controlplane

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

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
	return guardNames(s.admin.Addr(), mux)
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

// guardNames has next serve only who asked for an address, or for localhost: a
// page in an operator's browser may have a name that leads here, but no address.
func guardNames(at net.Addr, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
			http.Error(w, fmt.Sprintf("ask for %s, or another address of it", at), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// AdminURL returns the URL of the admin listener, empty if there is none.
func (s *Server) AdminURL() string {
	if s.admin == nil {
		return ""
	}
	return "http://" + s.admin.Addr().String()
}
