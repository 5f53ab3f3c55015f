package integrations

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/policy"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// An attachedCall is a call under the policy of an attachment.
type attachedCall struct {
	toolCall
	attachment store.Attachment
	action     policy.Action
	rules      policy.Policy
	provider   *oauth.Provider
}

// executeAttached does what an attachment's policy allows with its account.
func (g *gateway) executeAttached(ctx context.Context, call toolCall) (protocol.GatewayAnswer, error) {
	c, err := g.attachedCall(ctx, call)
	if err != nil {
		g.auditRefusal(ctx, call, err)
		return protocol.GatewayAnswer{}, err
	}
	record := call.record(g.clock.Now())
	record.Account, record.PolicyID, record.PolicyVersion = c.attachment.Account, c.attachment.PolicyID, c.attachment.PolicyVersion
	answer, err := g.executeUnder(ctx, c)
	record.Decision, record.Reason, record.Outcome = answer.Decision, answer.Reason, outcomeText(err)
	if err != nil {
		record.Decision = protocol.GatewayAllowed // as far as the policy went
	}
	g.audit(ctx, record)
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	answer.PolicyID, answer.PolicyVersion = c.attachment.PolicyID, int(c.attachment.PolicyVersion)
	return answer, nil
}

// attachedCall finds the attachment that a call is about.
func (g *gateway) attachedCall(ctx context.Context, call toolCall) (attachedCall, error) {
	c := attachedCall{toolCall: call}
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
	c.attachment, err = g.store.Attachment(ctx, call.Session.ID, call.PTY, call.Provider)
	if err != nil && protocol.KindOf(err) == protocol.KindNotFound {
		err = codedErrorf(codeNotAttached, protocol.KindForbidden, "no account of %s is attached to this terminal", call.Provider)
	}
	if err != nil {
		return c, err
	}
	if c.provider, err = g.providers.find(call.Provider); err != nil {
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
func (g *gateway) executeUnder(ctx context.Context, c attachedCall) (protocol.GatewayAnswer, error) {
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
	token, err := g.tokens.get(ctx, c.provider, c.attachment.Account, "")
	if err != nil {
		return protocol.GatewayAnswer{}, err
	}
	bearer, err := g.tokens.bearer(c.provider, c.attachment.Account, token)
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
