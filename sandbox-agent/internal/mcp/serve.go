package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	// bodyTimeout bounds the time to receive a body.
	bodyTimeout = time.Minute
	// maxDiscarded bytes of a too large body are still read, for discardTimeout.
	maxDiscarded   = 16 << 20
	discardTimeout = 5 * time.Second
	// codeBusy says that a request was valid and may succeed later.
	codeBusy = -32000
)

// A destination is the SDK server that answers a request, and the exchange.
type destination struct {
	server *sdk.Server
	*exchange
}

type destinationKey struct{}

func destinationOf(r *http.Request) destination {
	at, _ := r.Context().Value(destinationKey{}).(destination)
	return at
}

// transports returns the SDK's transports. The caller was checked before: the
// SDK's own token check only carries it to the message handlers.
func (s *Server) transports() (stateful, stateless http.Handler) {
	server := func(r *http.Request) *sdk.Server { return destinationOf(r).server }
	carry := auth.RequireBearerToken(
		func(_ context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
			return destinationOf(r).carry(), nil
		},
		&auth.RequireBearerTokenOptions{AllowMissingExpiration: true},
	)
	opts := sdk.StreamableHTTPOptions{
		EventStore: s.events, DisableLocalhostProtection: true, MaxRequestBodyBytes: protocol.MaxMCPBody,
	}
	stateful = carry(sdk.NewStreamableHTTPHandler(server, &opts))
	opts.Stateless, opts.EventStore, opts.PropagateRequestCancellation = true, nil, true
	stateless = carry(sdk.NewStreamableHTTPHandler(server, &opts))
	return stateful, stateless
}

// serveMCP answers one request of streamable HTTP.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request, x *exchange) {
	ctx, cancel := contextOf(r, x.owner)
	defer cancel()
	x.sink = newSink(w, r.Method == http.MethodGet)
	defer x.sink.finish()
	r = r.WithContext(ctx)
	var err error
	switch r.Method {
	case http.MethodPost:
		err = s.post(x, r)
	case http.MethodGet, http.MethodDelete:
		err = s.inSession(x, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		err = &fault{refusedRequest, http.StatusMethodNotAllowed, "use GET, POST or DELETE"}
	}
	if err != nil {
		s.refuse(x.sink, err)
	}
}

// contextOf returns a context that ends with the request or with its owner.
func contextOf(r *http.Request, o *owner) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(o.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// post passes messages to the SDK, or returns a refusal.
func (s *Server) post(x *exchange, r *http.Request) error {
	body, err := s.readBody(x, x.sink, r)
	if err != nil {
		return err
	}
	version := r.Header.Get(versionHeader)
	if version != "" && version < versionNoSessions && !slices.Contains(sdk.SupportedProtocolVersions(), version) {
		return rpcErrorf(nil, jsonrpc.CodeInvalidRequest, "version %.32q of the protocol is not known", version)
	}
	p, err := parse(body, version)
	if err != nil {
		return err
	}
	if p.empty {
		x.sink.WriteHeader(http.StatusAccepted)
		return nil
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	switch {
	case version >= versionNoSessions, p.discover:
		s.forward(s.stateless, r, destination{s.sharedServer(x.owner), x})
		return nil
	case r.Header.Get(sessionHeader) != "" || !p.initialize:
		return s.inSession(x, r)
	}
	began, err := s.newSession(x.owner)
	if err != nil {
		return err
	}
	defer s.releaseSession(began)
	s.forward(s.stateful, r, destination{began.mcp, x})
	return nil
}

// inSession passes a request to the session that it names.
func (s *Server) inSession(x *exchange, r *http.Request) error {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		return &fault{refusedSession, http.StatusBadRequest, sessionHeader + " is missing: begin with initialize"}
	}
	in, ok := s.useSession(x.owner, id)
	if !ok {
		return &fault{refusedSession, http.StatusNotFound, "there is no such MCP session: begin with initialize"}
	}
	defer s.releaseSession(in)
	if r.Method == http.MethodDelete {
		in.end() // the SDK waits for calls under way
	}
	s.forward(s.stateful, r, destination{in.mcp, x})
	return nil
}

// sharedServer returns the server for requests of o without a session.
func (s *Server) sharedServer(o *owner) *sdk.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.shared == nil {
		o.shared = s.newServer(o.ctx, "")
	}
	return o.shared
}

func (s *Server) forward(to http.Handler, r *http.Request, at destination) {
	r = r.WithContext(context.WithValue(r.Context(), destinationKey{}, at))
	r.Header = r.Header.Clone()
	r.Header.Del(protocol.MCPSecretHeader)
	r.Header.Set("Authorization", "Bearer -") // only carry reads it
	to.ServeHTTP(at.sink, r)
}

// readBody returns the body of a POST, which is kept until x ends.
func (s *Server) readBody(x *exchange, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !isJSON(r) {
		return nil, errType
	}
	if r.ContentLength > protocol.MaxMCPBody {
		s.discard(w, r)
		return nil, errSize
	}
	if r.ContentLength > smallBody || r.ContentLength < 0 {
		if err := s.holdLarge(x); err != nil {
			return nil, err
		}
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer control.SetReadDeadline(time.Time{})
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxMCPBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		s.discard(w, r)
		return nil, errSize
	case err != nil:
		return nil, errBody
	}
	return body, nil
}

// discard reads a body that is too large, unless it is far too large: many
// clients read no answer before they have sent everything.
func (s *Server) discard(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return // the client waits for 100 Continue
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(discardTimeout))
	defer control.SetReadDeadline(time.Time{})
	io.CopyN(io.Discard, r.Body, maxDiscarded)
}

// refuse answers a request of streamable HTTP with err. Clients of JSON-RPC and
// of our REST routes can both read the answer.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	status, reason, name := http.StatusBadRequest, refusedMessage, protocol.KindInvalid.Name()
	var rpc *rpcError
	ok := errors.As(err, &rpc)
	if ok && rpc.code == jsonrpc.CodeMethodNotFound {
		status = http.StatusOK // the message was understood
	}
	if !ok {
		status, reason, name = explain(err)
		rpc = &rpcError{code: jsonrpc.CodeInvalidRequest, message: err.Error()}
		if reason == refusedLimit {
			rpc.code = codeBusy
		}
	}
	s.metrics.refused.WithLabelValues(reason).Inc()
	type body struct {
		Code int64 `json:"code"`
		protocol.ErrorBody
	}
	id := rpc.id
	if id == nil {
		id = json.RawMessage("null")
	}
	writeJSON(w, status, map[string]any{
		"jsonrpc": "2.0", "id": id, "error": body{rpc.code, protocol.ErrorBody{Message: rpc.message, Name: name}},
	})
}

// explain returns how an error is answered and counted.
func explain(err error) (status int, reason, name string) {
	var f *fault
	if errors.As(err, &f) {
		kind := protocol.KindByStatus(f.status)
		if kind == protocol.KindInternal {
			kind = protocol.KindInvalid // no kind has that status; the fault is the client's
		}
		return f.status, f.reason, kind.Name()
	}
	kind := protocol.AsError(err).Kind
	reason = refusedRequest
	if kind == protocol.KindTooMany || kind == protocol.KindUnavailable {
		reason = refusedLimit
	}
	return kind.Status(), reason, kind.Name()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
