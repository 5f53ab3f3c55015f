package integrations

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents/tools"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxGatewayBody = 4 << 20 // bytes of a request: it may hold a file
	maxActionBytes = 64
)

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
	if call.Provider == tabsProvider {
		answer, err = g.executeInTab(r.Context(), call)
	} else if slices.Contains(tools.Providers, call.Provider) {
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

// executeInTab has something done in a tab that is shared with the session.
func (g *gateway) executeInTab(ctx context.Context, call toolCall) (protocol.GatewayAnswer, error) {
	record := call.record(g.clock.Now())
	response, about, err := g.tabs.Run(ctx, call.Session.ID, call.Action, call.Args)
	record.Decision, record.Reason = protocol.GatewayAllowed, about
	switch kind := protocol.KindOf(err); {
	case err == nil:
	case kind == protocol.KindNotFound:
		err = codedErrorf(codeNotAttached, protocol.KindForbidden, "%v", err)
		record.Decision = protocol.GatewayDenied
	case kind == protocol.KindForbidden:
		err = codedErrorf(codeDenied, kind, "%v", err)
		record.Decision = protocol.GatewayDenied
	case kind == protocol.KindUnknown:
		err = codedErrorf(codeTimeout, kind, "%v", err)
	}
	if err == nil && len(response) > protocol.MaxGatewayAnswer-aroundResponse {
		err = codedErrorf(codeAPI, protocol.KindUpstream, "the answer is larger than %d bytes: ask for less", protocol.MaxGatewayAnswer-aroundResponse)
	}
	record.Outcome = outcomeText(err)
	g.audit(ctx, record)
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	return protocol.GatewayAnswer{Allowed: true, Decision: protocol.GatewayAllowed, Response: response}, nil
}
