// Package web serves the control plane's routes: it reads strict JSON bodies,
// answers with JSON or an error in one form, and counts both.
package web

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/program/seldom"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// MaxBody bounds the body of a request, in bytes, where a route says nothing else.
	MaxBody = 64 << 10
	// WriteTimeout is how long an answer may take. A route that waits extends it.
	WriteTimeout = 30 * time.Second
	// IdleTimeout is how long a connection is kept without a request.
	IdleTimeout = 2 * time.Minute
	// RevisionHeader names the build in every answer.
	RevisionHeader = "Fairlead-Revision"

	maxHeaderBytes = 32 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
)

// A Handler answers a request, or returns an error that the [Server] answers with.
type Handler func(w *Writer, r *http.Request) error

// A Route is served at one method and path.
type Route struct {
	Method string
	Path   string // a pattern of [http.ServeMux]
	Serve  Handler

	Caller  Caller // empty: the listener's
	MaxBody int64  // bytes; 0: [MaxBody]
}

// Get returns a route.
func Get(path string, serve Handler) Route {
	return Route{Method: http.MethodGet, Path: path, Serve: serve}
}

// Post returns a route.
func Post(path string, serve Handler) Route {
	return Route{Method: http.MethodPost, Path: path, Serve: serve}
}

// Put returns a route.
func Put(path string, serve Handler) Route {
	return Route{Method: http.MethodPut, Path: path, Serve: serve}
}

// Patch returns a route.
func Patch(path string, serve Handler) Route {
	return Route{Method: http.MethodPatch, Path: path, Serve: serve}
}

// Delete returns a route.
func Delete(path string, serve Handler) Route {
	return Route{Method: http.MethodDelete, Path: path, Serve: serve}
}

// For returns the route measured with the requests of caller.
func (rt Route) For(caller Caller) Route {
	rt.Caller = caller
	return rt
}

// Limit returns the route with bodies of at most maxBody bytes.
func (rt Route) Limit(maxBody int64) Route {
	rt.MaxBody = maxBody
	return rt
}

// String returns method and path, the route's label in metrics.
func (rt Route) String() string { return rt.Method + " " + rt.Path }

// A Server answers requests.
type Server struct {
	// Static after construction.
	answers answers
	logger  *slog.Logger
	metrics *metrics
}

// New returns a server that names revision, the build, in all answers.
func New(revision string, logger *slog.Logger, clk clock.Clock) *Server {
	return &Server{
		answers: answers{revision, logger, clk, &seldom.Limit[refusal]{}},
		logger:  logger, metrics: newMetrics(),
	}
}

// NewHTTPServer returns a server of HTTP/1.1 alone: that is all a relay's proxy
// and an agent speak, and HTTP/2 would only add surface.
func (s *Server) NewHTTPServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// Handler serves the routes of one listener. Every other method or path gets an
// error in our form. Requests are measured as caller's unless their route says
// otherwise.
func (s *Server) Handler(caller Caller, routes []Route) http.Handler {
	mux := http.NewServeMux()
	allowed := make(map[string][]string)
	for _, rt := range routes {
		mux.HandleFunc(rt.String(), s.metrics.measured(rt.String(), caller.or(rt.Caller), s.hardened(rt)))
		allowed[rt.Path] = append(allowed[rt.Path], rt.Method)
	}
	other := func(pattern string, serve Handler) {
		mux.HandleFunc(pattern, s.metrics.measured(otherRoute, caller, s.hardened(Route{Serve: serve})))
	}
	for path, methods := range allowed {
		slices.Sort(methods)
		other(path, func(w *Writer, _ *http.Request) error {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			return protocol.Errorf(protocol.KindMethod, "method not allowed")
		})
	}
	other("/", func(*Writer, *http.Request) error {
		return protocol.Errorf(protocol.KindNotFound, "no such route")
	})
	return mux
}

// hardened bounds the body of a request, and has browsers believe the type of
// the answer.
func (s *Server) hardened(rt Route) http.HandlerFunc {
	limit := rt.MaxBody
	if limit == 0 {
		limit = MaxBody
	}
	serve := s.Plain(rt.Serve)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		serve(w, r)
	}
}

// Plain serves without measuring, and without a bound on bodies.
func (s *Server) Plain(serve Handler) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := &Writer{ResponseWriter: rw, answers: &s.answers}
		w.Header().Set(RevisionHeader, s.answers.revision)
		w.Header().Set("Cache-Control", "no-store")
		if err := serve(w, r); err != nil {
			w.fail(r, err)
		}
	}
}

// Collectors returns the server's metrics, with the counters of routes there from
// the start.
func (s *Server) Collectors(routes []Route) []prometheus.Collector {
	for _, rt := range routes {
		s.metrics.show(rt.String())
	}
	s.metrics.show(otherRoute)
	return []prometheus.Collector{s.metrics.requests, s.metrics.seconds, s.metrics.underWay}
}
