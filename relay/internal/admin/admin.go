// Package admin serves operators: health, readiness, metrics and profiles, on
// a listener of its own.
package admin

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// Options are what the pages show.
type Options struct {
	Revision string
	Registry *prometheus.Registry
	Ready    func() error // nil when the relay takes traffic
	Status   func() any   // added to /healthz; holds no secret
	// Sandboxes is the list of those that are connected, for /sandboxes.
	Sandboxes func() any
}

// Handler serves /healthz, /readyz, /sandboxes, /metrics and /debug/pprof/.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "revision": o.Revision, "details": o.Status()})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := o.Ready(); err != nil {
			writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": err.Error(), "revision": o.Revision})
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"status": "ready", "revision": o.Revision})
	})
	mux.HandleFunc("GET /sandboxes", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"sandboxes": o.Sandboxes(), "revision": o.Revision})
	})
	instrument.Routes(mux, o.Registry)
	return mux
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
