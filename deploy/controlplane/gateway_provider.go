package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/policy"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// actionsOf lists the actions of a provider whose accounts can be attached.
func actionsOf(name string) (actions []policy.Action, known bool) {
	for _, a := range provider.Actions(name) {
		actions = append(actions, policy.Action{Name: a.Name, ReadOnly: a.ReadOnly})
	}
	return actions, len(actions) > 0
}

// An attachedCall is a call under the policy of an attachment.
type attachedCall struct {
	boardCall
	attachment store.Attachment
	action     policy.Action
	rules      policy.Policy
	provider   *oauth.Provider
}

// executeAttached does what an attachment's policy allows with its account.
func (s *Server) executeAttached(ctx context.Context, call boardCall) (protocol.GatewayAnswer, error) {
	c, err := s.attachedCall(ctx, call)
	if err != nil {
		s.auditRefusal(ctx, call, err)
		return protocol.GatewayAnswer{}, err
	}
	record := call.record(s.clock.Now())
	record.Account, record.PolicyID, record.PolicyVersion = c.attachment.Account, c.attachment.PolicyID, c.attachment.PolicyVersion
	answer, err := s.executeUnder(ctx, c)
	record.Decision, record.Reason, record.Outcome = answer.Decision, answer.Reason, outcomeText(err)
	if err != nil {
		record.Decision = protocol.GatewayAllowed // as far as the policy went
	}
	s.audit(ctx, record)
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	answer.PolicyID, answer.PolicyVersion = c.attachment.PolicyID, int(c.attachment.PolicyVersion)
	return answer, nil
}

// attachedCall finds the attachment that a call is about.
func (s *Server) attachedCall(ctx context.Context, call boardCall) (attachedCall, error) {
	c := attachedCall{boardCall: call}
	actions, known := actionsOf(call.Provider)
	if !known {
		return c, protocol.Errorf(protocol.KindNotFound, "no such provider")
	}
	i := slices.IndexFunc(actions, func(a policy.Action) bool { return a.Name == call.Action })
	switch {
	case i < 0:
		return c, protocol.Errorf(protocol.KindInvalid, "%s has no such action", call.Provider)
	case call.PTY == "":
		return c, protocol.Errorf(protocol.KindInvalid, "pty_id is missing: an account is attached to a terminal")
	}
	c.action = actions[i]
	var err error
	c.attachment, err = s.store.Integrations.Attachment(ctx, call.Session.ID, call.PTY, call.Provider)
	if err != nil && protocol.KindOf(err) == protocol.KindNotFound {
		err = codedErrorf(codeNotAttached, protocol.KindForbidden, "no account of %s is attached to this terminal", call.Provider)
	}
	if err != nil {
		return c, err
	}
	if c.provider, err = s.integrations.provider(call.Provider); err != nil {
		return c, err
	}
	if c.rules, err = policy.Parse(call.Provider, actions, c.attachment.Policy); err != nil { // of another version of ours
		return c, codedErrorf(codeDenied, protocol.KindForbidden, "the attachment's policy can't be read: attach the account again")
	}
	return c, nil
}

func deniedAnswer(d policy.Decision) protocol.GatewayAnswer {
	return protocol.GatewayAnswer{Decision: protocol.GatewayDenied, Reason: d.Reason}
}

// executeUnder decides, asks the provider, and withholds of its answer what the
// policy excludes. What is denied by its action or arguments never reaches the
// provider.
func (s *Server) executeUnder(ctx context.Context, c attachedCall) (protocol.GatewayAnswer, error) {
	if d := c.rules.Permits(c.action); !d.Allowed {
		return deniedAnswer(d), nil
	}
	named, err := provider.Resources(c.Provider, c.Action, c.Args)
	if err != nil {
		return protocol.GatewayAnswer{}, upstreamError(err, nil)
	}
	touched := touches(named)
	if excluded := c.rules.Excludes(touched); !excluded.Allowed {
		return deniedAnswer(excluded), nil
	}
	token, err := s.token(ctx, c.provider, c.attachment.Account, "")
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	bearer, err := s.newBearer(c.provider, c.attachment.Account, token)
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	up := provider.Call{
		Provider: c.Provider, Action: c.Action, Args: c.Args, BaseURL: c.provider.APIURL,
		NameRoot: c.rules.Drive != nil && slices.Contains(c.rules.Drive.Folders, "root"),
		Client:   &http.Client{Transport: bearer, Timeout: upstreamTimeout},
	}
	if c.rules.Limited() {
		found, err := provider.Lookup(ctx, up)
		if err != nil {
			return protocol.GatewayAnswer{}, upstreamError(err, bearer.secrets())
		}
		if d := c.rules.Decide(c.action, append(touched, touches(found)...)); !d.Allowed {
			return deniedAnswer(d), nil
		}
	}
	response, err := provider.Execute(ctx, up)
	if err != nil {
		return protocol.GatewayAnswer{}, upstreamError(err, bearer.secrets())
	}
	return c.filter(response, bearer.secrets())
}

// aroundResponse bounds what an answer holds beside a provider's response.
const aroundResponse = 4 << 10

// filter withholds what the policy excludes, and masks tokens that the provider
// has echoed.
func (c *attachedCall) filter(response json.RawMessage, secrets []string) (protocol.GatewayAnswer, error) {
	answer := protocol.GatewayAnswer{Allowed: true, Decision: protocol.GatewayAllowed}
	if c.rules.Limited() {
		rest, withheld, err := provider.Filter(c.Provider, c.Action, response, c.rules.Keep)
		if err != nil {
			return answer, codedErrorf(codeAPI, protocol.KindUpstream, "the answer of %s can't be checked against the policy", c.Provider)
		}
		response = rest
		if withheld > 0 {
			answer.Decision = protocol.GatewayFiltered
			answer.Reason = fmt.Sprintf("the policy withholds %d of what %s answered", withheld, c.Provider)
		}
	}
	response = mask(response, secrets)
	if len(response) > protocol.MaxGatewayAnswer-aroundResponse {
		return answer, codedErrorf(codeAPI, protocol.KindUpstream, "the answer of %s is larger than %d bytes: ask for less",
			c.Provider, protocol.MaxGatewayAnswer-aroundResponse)
	}
	if !json.Valid(response) {
		return answer, codedErrorf(codeAPI, protocol.KindUpstream, "the answer of %s can't be passed on", c.Provider)
	}
	answer.Response = response
	return answer, nil
}

func touches(resources []provider.Resource) []policy.Resource {
	all := make([]policy.Resource, len(resources))
	for i, r := range resources {
		all[i] = policy.Resource{Kind: r.Kind, Value: r.Value}
	}
	return all
}

// upstreamError gives an error of the provider's package its code, and masks
// tokens in it.
func upstreamError(err error, secrets []string) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return err
	}
	kinds := map[string]protocol.Kind{
		provider.CodeInvalid: protocol.KindInvalid, provider.CodeLimit: protocol.KindTooMany,
		provider.CodeAPI: protocol.KindUpstream, provider.CodeTimeout: protocol.KindUpstream,
	}
	return codedErrorf(e.Code, kinds[e.Code], "%s", provider.Cut(string(mask([]byte(e.Message), secrets))))
}

// masked stands where a provider echoed a token.
const masked = "[token]"

// mask replaces secrets in text, as they are and as JSON and URLs spell them.
func mask(text []byte, secrets []string) []byte {
	for _, secret := range secrets {
		spellings := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
		if quoted, err := json.Marshal(secret); err == nil {
			spellings = append(spellings, string(quoted[1:len(quoted)-1]))
		}
		for _, spelling := range spellings {
			text = bytes.ReplaceAll(text, []byte(spelling), []byte(masked))
		}
	}
	return text
}
