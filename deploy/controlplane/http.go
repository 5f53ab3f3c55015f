package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxBodyBytes   = 64 << 10
	maxCallback    = protocol.MaxFramePayload // what a RESULT can carry
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

func (s *Server) handler() http.Handler { return s.mux(s.routes(), false) }

func (s *Server) agentHandler() http.Handler { return s.mux(s.agentRoutes(), true) }

// mux serves the routes, of agents or of everybody else; every other method or
// path gets our error body.
func (s *Server) mux(routes []route, agents bool) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern, label string, serve handlerFunc) {
		limit := int64(maxBodyBytes)
		switch {
		case strings.HasSuffix(pattern, "/callback"):
			limit = maxCallback
		case strings.HasSuffix(pattern, "/execute"):
			limit = maxGatewayBody
		}
		mux.HandleFunc(pattern, s.metrics.measured(label, whose(agents, label), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(revisionHeader, s.revision)
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			if err := serve(w, r); err != nil {
				s.fail(w, r, err)
			}
		}))
	}
	allowed := make(map[string][]string)
	for _, rt := range spelledOut(routes) {
		handle(rt.method+" "+rt.path, rt.method+" "+rt.path, rt.serve)
		allowed[rt.path] = append(allowed[rt.path], rt.method)
	}
	for path, methods := range allowed {
		slices.Sort(methods)
		handle(path, otherRoute, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			return protocol.Errorf(protocol.KindMethod, "method not allowed")
		})
	}
	handle("/", otherRoute, func(http.ResponseWriter, *http.Request) error {
		return protocol.Errorf(protocol.KindNotFound, "no such route")
	})
	return mux
}

// spelledOut names each provider in the routes below /integrations, where a mux
// couldn't tell a wildcard from "accounts".
func spelledOut(routes []route) (all []route) {
	const wildcard = "/integrations/{provider}/"
	for _, rt := range routes {
		rest, is := strings.CutPrefix(rt.path, wildcard)
		if !is {
			all = append(all, rt)
			continue
		}
		for _, name := range oauth.Providers() {
			all = append(all, route{rt.method, "/integrations/" + name + "/" + rest, func(w http.ResponseWriter, r *http.Request) error {
				r.SetPathValue("provider", name)
				return rt.serve(w, r)
			}})
		}
	}
	return all
}

// revised is part of every JSON answer of ours.
type revised struct {
	Revision string `json:"revision"`
}

type errorAnswer struct {
	Error  protocol.ErrorBody `json:"error"`
	Status string             `json:"status,omitempty"` // unknown: it may have been done
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
	e := s.note(r, err)
	answer := errorAnswer{Error: e.Body(), revised: s.stamp()}
	if e.Kind == protocol.KindUnknown {
		answer.Status = protocol.StatusUnknown
	}
	if err := s.write(w, e.Kind.Status(), answer); err != nil {
		s.logger.Error("error body", "error", err)
	}
}

// note logs why a request failed, and returns the error as its caller may read
// it. Refusals are counted, with a line for each sort of them now and then.
func (s *Server) note(r *http.Request, err error) *protocol.Error {
	e := protocol.AsError(err)
	if e.Kind.Status() >= http.StatusInternalServerError && e.Kind != protocol.KindUnsupported {
		s.logger.Error("request failed", "method", r.Method, "route", r.Pattern, "error", e, "cause", e.Err)
		return e
	}
	s.logger.Debug("request refused", "method", r.Method, "route", r.Pattern, "error", e)
	if n := s.refusals.count(refusalSort{r.Pattern, e.Kind}, s.now()); n > 0 {
		s.logger.Info("requests refused", "route", r.Pattern, "kind", e.Kind, "name", e.Kind.Name(), "count", n)
	}
	return e
}

// readAll returns the body as it was sent.
func readAll(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	if err == nil {
		return data, nil
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, protocol.Errorf(protocol.KindTooLarge, "body larger than %d bytes", tooLarge.Limit)
	}
	return nil, protocol.Errorf(protocol.KindInvalid, "body could not be read")
}

// readBody decodes the body, which must be one strict JSON object, into v.
func readBody(r *http.Request, v any) error {
	data, err := readAll(r)
	if err != nil {
		return err
	}
	if err := protocol.UnmarshalStrict(data, v); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	return nil
}

// readOptionalBody is readBody for a body that may be left out.
func readOptionalBody(r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return readBody(r, v)
}

// authenticate asks find who the bearer token of r stands for. realm tells the
// caller which token the route takes.
func authenticate[T any](w http.ResponseWriter, r *http.Request, realm string,
	find func(context.Context, string) (T, error),
) (T, error) {
	var found T
	token := bearer(r)
	err := error(protocol.Errorf(protocol.KindUnauthenticated, "want Authorization: Bearer with a %s", realm))
	if token != "" {
		found, err = find(r.Context(), token)
	}
	if err != nil && protocol.KindOf(err) == protocol.KindUnauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`"`)
	}
	return found, err
}

// bearer returns the bearer token of r, empty if it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// The realms: whose token a route takes.
const (
	realmUser  = "user token"
	realmRelay = "relay credential"
	realmGrant = "grant"
)

// asUser returns the user whose token r carries.
func (s *Server) asUser(w http.ResponseWriter, r *http.Request) (store.User, error) {
	user, err := authenticate(w, r, realmUser, s.store.People.UserByToken)
	if err == nil {
		s.usage.count("", user.ID, store.UsageAPIRequests)
	}
	return user, err
}

// none answers a request that leaves nothing to say.
func none(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// healthTimeout is how long the database may take to answer a probe.
const healthTimeout = time.Second

// getHealth says whether requests can be answered: not while the database can't
// be asked.
func (s *Server) getHealth(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if err := s.store.Ping(ctx); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return s.write(w, http.StatusOK, struct {
		Status string `json:"status"`
		revised
	}{"ok", s.stamp()})
}
