package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	maxBodyBytes   = 64 << 10
	maxHeaderBytes = 32 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
	writeTimeout   = 30 * time.Second // a route that waits extends it
	idleTimeout    = 2 * time.Minute
	revisionHeader = "Fairlead-Revision"
)

// newHTTPServer returns a server of HTTP/1.1 alone: that is all a relay's proxy
// and an agent speak, and HTTP/2 would only add surface.
func (s *Server) newHTTPServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// A handlerFunc answers a request, or returns an error for [Server.fail].
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

type route struct {
	method, path string
	serve        handlerFunc
}

func (s *Server) handler() http.Handler {
	return s.mux([]route{
		{http.MethodGet, "/healthz", s.getHealth},
		{http.MethodGet, "/.well-known/jwks.json", s.getKeys},
		{http.MethodGet, "/auth/me", s.getMe},
		{http.MethodPost, "/grants", s.postGrant},
		{http.MethodPost, "/commands", s.postCommand},
		{http.MethodPost, "/internal/sign", s.postSign},
		{http.MethodPut, "/internal/relays/{id}", s.putRelay},
	})
}

func (s *Server) agentHandler() http.Handler {
	return s.mux([]route{
		{http.MethodGet, "/.well-known/jwks.json", s.getKeys},
	})
}

// mux serves the routes; every other method or path gets our error body.
func (s *Server) mux(routes []route) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve handlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(revisionHeader, s.revision)
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
			if err := serve(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	for _, rt := range routes {
		handle(rt.method+" "+rt.path, rt.serve)
		handle(rt.path, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Allow", rt.method)
			return protocol.Errorf(protocol.KindMethod, "method not allowed")
		})
	}
	handle("/", func(http.ResponseWriter, *http.Request) error {
		return protocol.Errorf(protocol.KindNotFound, "no such route")
	})
	return mux
}

// revised is part of every JSON answer of ours.
type revised struct {
	Revision string `json:"revision"`
}

type errorAnswer struct {
	Error protocol.ErrorBody `json:"error"`
	revised
}

func (s *Server) stamp() revised { return revised{s.revision} }

// write answers with v as JSON.
func (s *Server) write(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		s.logger.Debug("an answer was not taken", "error", err)
	}
	return nil
}

// fail answers with err in the form of its kind. What is our own fault is
// logged, and the caller reads no more than that it is.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := protocol.AsError(err)
	if e.Kind.Status() >= http.StatusInternalServerError {
		s.logger.Error("request failed", "method", r.Method, "route", r.Pattern, "error", e, "cause", e.Err)
	} else {
		s.logger.Debug("request refused", "method", r.Method, "route", r.Pattern, "error", e)
	}
	if err := s.write(w, e.Kind.Status(), errorAnswer{e.Body(), s.stamp()}); err != nil {
		s.logger.Error("error body", "error", err)
	}
}

// readBody decodes the body, which must be one strict JSON object, into v.
func readBody(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return protocol.Errorf(protocol.KindTooLarge, "body larger than %d bytes", tooLarge.Limit)
		}
		return protocol.Errorf(protocol.KindInvalid, "body could not be read")
	}
	if err := protocol.UnmarshalStrict(data, v); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	return nil
}

// authenticate asks find who the bearer token of r stands for. realm tells the
// caller which token the route takes.
func authenticate[T any](w http.ResponseWriter, r *http.Request, realm string,
	find func(context.Context, string) (T, error),
) (T, error) {
	var found T
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	err := error(protocol.Errorf(protocol.KindUnauthenticated, "want Authorization: Bearer with a %s", realm))
	if ok && strings.EqualFold(scheme, "Bearer") && token != "" {
		found, err = find(r.Context(), token)
	}
	if err != nil && protocol.KindOf(err) == protocol.KindUnauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`"`)
	}
	return found, err
}

// The realms: whose token a route takes.
const (
	realmUser  = "user token"
	realmRelay = "relay credential"
	realmGrant = "grant"
)

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return s.write(w, http.StatusOK, struct {
		Status string `json:"status"`
		revised
	}{"ok", s.stamp()})
}

// getKeys serves the public keys as they are, without members of ours.
func (s *Server) getKeys(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age=30")
	return s.write(w, http.StatusOK, json.RawMessage(s.jwks))
}
