package integrations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents/tools"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxGatewayBody = 4 << 20 // bytes of a request: it may hold a file
	maxActionBytes = 64
)

// A recordStore keeps what was asked of the gateway, and under which attachment.
type recordStore interface {
	Attachment(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, provider string) (store.Attachment, error)
	AddGatewayRecord(ctx context.Context, r store.GatewayRecord) error
	GatewayRecords(ctx context.Context, dashboard, before string, limit int) ([]store.GatewayRecord, error)
}

// A gateway does what programs in sandboxes ask of providers, and records it.
type gateway struct {
	// Static after construction.
	store     recordStore
	sessions  Sessions
	people    *access.Gate
	sandboxes *device.Gate
	contents  *store.Contents
	providers providers
	tokens    *tokens
	clock     clock.Clock
	logger    *slog.Logger
	calls     *prometheus.CounterVec // by decision
}

// A toolCall is a request to the gateway.
type toolCall struct {
	Session  store.Session   // active, as no member sees it
	PTY      protocol.PTYID  // empty: none was named
	User     protocol.UserID // empty: a program in the sandbox; else a member who has mcp
	Role     store.Role      // of User
	Provider string
	Action   string          // "tasks.create", …
	Args     json.RawMessage // an object
}

// execute does what a program in a sandbox, or a person through it, asks of
// a provider, as far as the policy of the attachment has it.
func (g *gateway) execute(w *web.Writer, r *http.Request) error {
	sandbox, body, err := g.sandboxes.Request(r)
	if err != nil {
		return err
	}
	leave, err := g.sandboxes.Enter(sandbox)
	if err != nil {
		return err
	}
	defer leave()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(3*upstreamTimeout + web.WriteTimeout)); err != nil {
		return err
	}
	call, err := g.parse(r.Context(), sandbox, r.PathValue("provider"), body)
	if err != nil {
		g.auditRefusal(r.Context(), call, err)
		return err
	}
	var answer protocol.GatewayAnswer
	if slices.Contains(tools.Providers, call.Provider) {
		answer, err = g.executeHere(r.Context(), call)
	} else {
		answer, err = g.executeAttached(r.Context(), call)
	}
	if err != nil {
		return err
	}
	return w.Document(http.StatusOK, answer)
}

// parse checks what a sandbox asks for, but not yet against a policy.
func (g *gateway) parse(ctx context.Context, sandbox protocol.SandboxID, provider string, body []byte) (toolCall, error) {
	var req protocol.GatewayRequest
	if err := protocol.UnmarshalStrict(body, &req); err != nil {
		return toolCall{}, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	session, err := device.SessionOf(ctx, g.sessions, sandbox, req.SessionID)
	if err != nil {
		return toolCall{}, err
	}
	call := toolCall{Session: session, PTY: req.PTYID, User: req.UserID, Provider: provider, Action: req.Action, Args: req.Args}
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
	member, err := g.sessions.Session(ctx, call.User, session.ID)
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
func (g *gateway) executeHere(ctx context.Context, call toolCall) (protocol.GatewayAnswer, error) {
	record := call.record(g.clock.Now())
	response, err := tools.Run(ctx, g.contents, tools.Call{
		Dashboard: call.Session.Dashboard, User: call.User, Role: call.Role,
		Provider: call.Provider, Action: call.Action, Args: call.Args,
	})
	record.Decision, record.Outcome = protocol.GatewayAllowed, outcomeText(err)
	g.audit(ctx, record)
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	return protocol.GatewayAnswer{Allowed: true, Decision: protocol.GatewayAllowed, Response: response}, nil
}

// record begins the record of a call.
func (c *toolCall) record(at time.Time) store.GatewayRecord {
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
func (g *gateway) auditRefusal(ctx context.Context, c toolCall, err error) {
	e, ok := errors.AsType[*codedError](err)
	if !ok {
		return
	}
	record := c.record(g.clock.Now())
	record.Decision, record.Reason, record.Outcome = protocol.GatewayDenied, e.Error(), e.code
	g.audit(ctx, record)
}

// audit keeps the record of a call, which was made by now: whoever asked needn't
// wait for it.
func (g *gateway) audit(ctx context.Context, r store.GatewayRecord) {
	g.calls.WithLabelValues(string(r.Decision)).Inc()
	g.logger.Debug("gateway", "provider", r.Provider, "action", r.Action, "decision", string(r.Decision), "outcome", r.Outcome,
		"session", r.Session, "pty", r.PTY, "user", r.User, "policy", r.PolicyID, "version", r.PolicyVersion)
	if err := g.store.AddGatewayRecord(context.WithoutCancel(ctx), r); err != nil {
		g.logger.Error("a gateway request was not recorded", "action", r.Action, "session", r.Session, "error", err)
	}
}
