package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents/tools"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxGatewayBody = 4 << 20 // of a request: it may hold a file
	maxActionBytes = 64

	// gatewayPerSecond and gatewayBurst bound what one sandbox may ask for,
	// gatewayAtOnce how much of that is under way.
	gatewayPerSecond = 20
	gatewayBurst     = 100
	gatewayAtOnce    = 16
)

// The codes that tell a program why the gateway did nothing.
const (
	codeInvalid     = "INVALID_REQUEST"
	codeNotAttached = "NOT_ATTACHED"
	codeDenied      = "POLICY_DENIED" // to a person who may not use tools; a policy's own denial is an answer
	codeLimit       = "RATE_LIMITED"
	codeAPI         = "API_ERROR"
	codeTimeout     = "TIMEOUT"
)

// A codedError is an error of the gateway with its code.
type codedError struct {
	code string
	err  *protocol.Error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func codedErrorf(code string, kind protocol.Kind, format string, args ...any) error {
	return &codedError{code, protocol.Errorf(kind, format, args...)}
}

// codeOf returns the code of an error that has none of its own.
func codeOf(kind protocol.Kind) string {
	switch kind {
	case protocol.KindInvalid, protocol.KindTooLarge, protocol.KindUnsupported, protocol.KindConflict:
		return codeInvalid
	case protocol.KindTooMany:
		return codeLimit
	case protocol.KindUpstream:
		return codeAPI
	}
	return ""
}

// coded has the errors of a route answered with their codes.
func coded(serve web.Handler) web.Handler {
	return func(w *web.Writer, r *http.Request) error {
		err := serve(w, r)
		if err == nil {
			return nil
		}
		e := w.Note(r, err)
		answer := struct {
			Error struct {
				protocol.ErrorBody
				Code string `json:"code,omitempty"`
			} `json:"error"`
		}{}
		answer.Error.ErrorBody, answer.Error.Code = e.Body(), codeOf(e.Kind)
		if with, ok := errors.AsType[*codedError](err); ok {
			answer.Error.Code = with.code
		}
		status := e.Kind.Status()
		if answer.Error.Code == codeTimeout {
			status = http.StatusGatewayTimeout
		}
		return w.JSON(status, answer)
	}
}

// gatewayLimits bound what sandboxes ask for.
type gatewayLimits struct {
	mu        sync.Mutex
	sandboxes map[protocol.SandboxID]*gatewayLimit // guarded by mu; enrolled ones only
}

type gatewayLimit struct {
	rate  *rate.Limiter
	slots chan struct{} // one element for each request under way
}

func newGatewayLimits() *gatewayLimits {
	return &gatewayLimits{sandboxes: make(map[protocol.SandboxID]*gatewayLimit)}
}

// enter takes one request of a sandbox in, until leave; an error of KindTooMany
// says that there are too many.
func (l *gatewayLimits) enter(sandbox protocol.SandboxID, now time.Time) (leave func(), err error) {
	l.mu.Lock()
	of := l.sandboxes[sandbox]
	if of == nil {
		of = &gatewayLimit{rate.NewLimiter(gatewayPerSecond, gatewayBurst), make(chan struct{}, gatewayAtOnce)}
		l.sandboxes[sandbox] = of
	}
	l.mu.Unlock()
	if !of.rate.AllowN(now, 1) {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many requests of this sandbox: at most %d per second", gatewayPerSecond)
	}
	select {
	case of.slots <- struct{}{}:
		return func() { <-of.slots }, nil
	default:
		return nil, protocol.Errorf(protocol.KindTooMany, "%d requests of this sandbox are under way already", gatewayAtOnce)
	}
}

// A boardCall is a request of the gateway for a provider that needs no
// integration: what is done is done here.
type boardCall struct {
	Session  store.Session   // active, as no member sees it
	PTY      protocol.PTYID  // empty: none was named
	User     protocol.UserID // empty: a program in the sandbox; else a member who has mcp
	Role     store.Role      // of User
	Provider string          // dashboard, tasks or memory
	Action   string          // "tasks.create", …
	Args     json.RawMessage // an object
}

// postExecute does what a program in a sandbox, or a person through it, asks of
// a provider, as far as the policy of the attachment has it.
func (s *Server) postExecute(w *web.Writer, r *http.Request) error {
	sandbox, body, err := s.devices.Request(r)
	if err != nil {
		return err
	}
	leave, err := s.integrations.limits.enter(sandbox, s.clock.Now())
	if err != nil {
		return err
	}
	defer leave()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(3*upstreamTimeout + web.WriteTimeout)); err != nil {
		return err
	}
	call, err := s.gatewayCall(r.Context(), sandbox, r.PathValue("provider"), body)
	if err != nil {
		s.auditRefusal(r.Context(), call, err)
		return err
	}
	var answer protocol.GatewayAnswer
	if slices.Contains(tools.Providers, call.Provider) {
		answer, err = s.executeHere(r.Context(), call)
	} else {
		answer, err = s.executeAttached(r.Context(), call)
	}
	if err != nil {
		return err
	}
	return w.Document(http.StatusOK, answer)
}

// gatewayCall checks what a sandbox asks for, but not yet against a policy.
func (s *Server) gatewayCall(ctx context.Context, sandbox protocol.SandboxID, provider string, body []byte) (boardCall, error) {
	var req protocol.GatewayRequest
	if err := protocol.UnmarshalStrict(body, &req); err != nil {
		return boardCall{}, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	session, err := s.sessionIn(ctx, sandbox, req.SessionID)
	if err != nil {
		return boardCall{}, err
	}
	call := boardCall{Session: session, PTY: req.PTYID, User: req.UserID, Provider: provider, Action: req.Action, Args: req.Args}
	if len(call.Args) == 0 || string(call.Args) == "null" {
		call.Args = json.RawMessage("{}")
	}
	if err := protocol.UnmarshalObject(call.Args, &map[string]json.RawMessage{}); err != nil {
		return call, protocol.Errorf(protocol.KindInvalid, "args must be an object")
	}
	if !web.EmptyOrID(call.PTY) || !web.EmptyOrID(call.User) {
		return call, protocol.Errorf(protocol.KindInvalid, "pty_id or user_id is not an id")
	}
	if !strings.HasPrefix(call.Action, provider+".") || len(call.Action) > maxActionBytes {
		return call, protocol.Errorf(protocol.KindInvalid, "action: want one of %s", provider)
	}
	if call.User == "" {
		return call, nil
	}
	member, err := s.store.Sessions.Session(ctx, call.User, session.ID)
	if err == nil && slices.Contains(access.Capabilities(member.Role, member.MemberCapabilities), protocol.CapMCP) {
		call.Role = member.Role
		return call, nil
	}
	if err != nil && protocol.KindOf(err).Status() >= http.StatusInternalServerError {
		return call, err
	}
	return call, codedErrorf(codeDenied, protocol.KindForbidden, "this user may not use the session's tools")
}

// executeHere does what needs no integration.
func (s *Server) executeHere(ctx context.Context, call boardCall) (protocol.GatewayAnswer, error) {
	record := call.record(s.clock.Now())
	response, err := tools.Run(ctx, s.store.Contents, tools.Call{
		Dashboard: call.Session.Dashboard, User: call.User, Role: call.Role,
		Provider: call.Provider, Action: call.Action, Args: call.Args,
	})
	record.Decision, record.Outcome = protocol.GatewayAllowed, outcomeText(err)
	s.audit(ctx, record)
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	return protocol.GatewayAnswer{Allowed: true, Decision: protocol.GatewayAllowed, Response: response}, nil
}

// record begins the record of a call.
func (c *boardCall) record(at time.Time) store.GatewayRecord {
	return store.GatewayRecord{
		At: at, Dashboard: c.Session.Dashboard, Session: c.Session.ID, PTY: c.PTY, User: c.User,
		Provider: c.Provider, Action: c.Action,
	}
}

// outcomeText says in a record why a call failed: no more than its sort.
func outcomeText(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*codedError](err); ok {
		return e.code
	}
	if code := codeOf(protocol.KindOf(err)); code != "" {
		return code
	}
	return fmt.Sprint(protocol.KindOf(err))
}

// auditRefusal keeps the record of a call that was denied before there was a
// policy to ask. A malformed one is none.
func (s *Server) auditRefusal(ctx context.Context, c boardCall, err error) {
	e, ok := errors.AsType[*codedError](err)
	if !ok {
		return
	}
	record := c.record(s.clock.Now())
	record.Decision, record.Reason, record.Outcome = protocol.GatewayDenied, e.Error(), e.code
	s.audit(ctx, record)
}

// audit keeps the record of a call, which was made by now: whoever asked needn't
// wait for it.
func (s *Server) audit(ctx context.Context, r store.GatewayRecord) {
	s.metrics.Gateway.WithLabelValues(string(r.Decision)).Inc()
	s.logger.Debug("gateway", "provider", r.Provider, "action", r.Action, "decision", string(r.Decision), "outcome", r.Outcome,
		"session", r.Session, "pty", r.PTY, "user", r.User, "policy", r.PolicyID, "version", r.PolicyVersion)
	if err := s.store.Integrations.AddGatewayRecord(context.WithoutCancel(ctx), r); err != nil {
		s.logger.Error("a gateway request was not recorded", "action", r.Action, "session", r.Session, "error", err)
	}
}
