package integration

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// call asks the gateway to run an action for caller. Every error becomes the
// tool's own failure.
func (s *Set) call(ctx context.Context, caller toolbox.Caller, provider, action string, args json.RawMessage) protocol.ToolResult {
	req := protocol.GatewayRequest{SessionID: caller.Session, PTYID: caller.PTY, Action: action, Args: args}
	if caller.Grant != nil {
		req.UserID = caller.Grant.Subject
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	answer, err := s.options.Client.Execute(ctx, provider, req)
	if err != nil {
		return toolbox.Failure(s.failure(ctx, err, caller, provider))
	}
	switch {
	case answer.Decision == protocol.GatewayDenied || !answer.Allowed:
		return toolbox.Failure("the policy of this integration denies it: " + or(printable(answer.Reason), "it gives no reason"))
	case answer.Decision != protocol.GatewayAllowed && answer.Decision != protocol.GatewayFiltered:
		return toolbox.Failure("the gateway's answer is not what it should be")
	}
	result := toolbox.Text(or(string(readable(answer.Response)), "{}"))
	if provider == tabs {
		return toolbox.Untrusted(result)
	}
	if answer.Decision == protocol.GatewayFiltered {
		note := "the policy of this integration withholds part of the answer"
		if reason := printable(answer.Reason); reason != "" {
			note += ": " + reason
		}
		result.Content = append(result.Content, protocol.ToolContent{Type: "text", Text: note})
	}
	return result
}

// escapes are written by JSON encoders for characters special in HTML. They
// make code hard to read, and this isn't HTML.
var escapes = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}

// readable returns text with those characters unescaped.
func readable(text json.RawMessage) json.RawMessage {
	out := make(json.RawMessage, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		if plain, ok := escapes[string(text[i:min(i+6, len(text))])]; ok {
			out = append(out, plain)
			i += 5
			continue
		}
		out = append(out, text[i], text[i+1])
		i++
	}
	return out
}

// failure says why there is no answer.
func (s *Set) failure(ctx context.Context, err error, caller toolbox.Caller, provider string) string {
	r, ok := errors.AsType[*Refusal](err)
	switch {
	case !ok && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "the control plane did not answer in time; it may have been done all the same"
	case !ok && ctx.Err() != nil:
		return "the call was given up; it may have been done all the same"
	case !ok:
		s.options.Log.Debug("the gateway can't be reached", "provider", provider, "error", err)
		return "the control plane can't be reached"
	case r.Status == http.StatusForbidden && r.Code == codeNotAttached:
		s.stale(terminal{caller.Session, caller.PTY})
	}
	return r.Message
}

// codeNotAttached says that a provider is not attached to the terminal.
const codeNotAttached = "NOT_ATTACHED"

// stale asks again for a terminal's integrations: the known ones are wrong.
func (s *Set) stale(t terminal) {
	s.mu.Lock()
	known := s.terminals[t]
	if known != nil {
		known.next = known.next.Add(-RefreshEvery)
	}
	s.mu.Unlock()
	if known != nil {
		s.rouse()
	}
}
