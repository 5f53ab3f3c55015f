package commands

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/signing"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

type signRequest struct {
	Grant          string          `json:"grant"`
	Op             json.RawMessage `json:"op"`
	Target         signing.Target  `json:"target"`
	IdempotencyKey string          `json:"idempotency_key"`
	TTLMs          *int64          `json:"ttlMs"`
}

type signAnswer struct {
	Envelope protocol.CommandEnvelope `json:"envelope"`
}

// postSign signs what a relay was asked to do by the holder of a grant. The
// relay's word counts for nothing beyond that: the grant is verified here, and
// so is what its user may do now.
func (c *Commands) postSign(w *web.Writer, r *http.Request) error {
	relay, err := c.Gate.Relay(w, r)
	if err != nil {
		return err
	}
	r, span := traced(r)
	err = c.signFor(w, r, relay, span)
	span.End(err)
	return err
}

// signFor signs what the body of r, which is relay's, asks for.
func (c *Commands) signFor(w *web.Writer, r *http.Request, relay protocol.RelayID, span telemetry.Span) error {
	var req signRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	if err := signing.CheckKey(req.IdempotencyKey); err != nil {
		return err
	}
	grant, err := c.Holder(w, r, req.Grant)
	if err != nil {
		return err
	}
	o, err := c.orderUnder(r.Context(), grant, req)
	if err != nil {
		return err
	}
	span.Set(telemetry.Operation(o.Kind))
	registered, err := c.Fleet.Relay(r.Context(), relay)
	if err != nil {
		return err
	}
	if registered.PublicOrigin == "" {
		return protocol.Errorf(protocol.KindUnavailable, "relay %s has not registered its address", relay)
	}
	o.Origin = registered.PublicOrigin
	cmd, err := c.Signer.Sign(r.Context(), o)
	if err != nil {
		return err
	}
	return w.JSON(http.StatusOK, signAnswer{cmd.Envelope})
}

// Holder verifies a grant that a relay was shown, as it is now.
func (c *Commands) Holder(w *web.Writer, r *http.Request, token string) (*jws.Grant, error) {
	if err := c.Revoked.Refresh(r.Context()); err != nil {
		return nil, err
	}
	grant, err := c.Keys.Keys().Grant(r.Context(), token)
	if err == nil && !c.Clock.Now().Before(grant.Expires()) { // by the clock that issued it
		err = protocol.Errorf(protocol.KindExpired, "the grant has expired")
	}
	if err != nil {
		if protocol.KindOf(err).Status() == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+access.RealmGrant+`", error="invalid_token"`)
		}
		return nil, err
	}
	return grant, nil
}

// orderUnder checks what req asks for against the grant and against what the
// grant's user may do now.
func (c *Commands) orderUnder(ctx context.Context, grant *jws.Grant, req signRequest) (signing.Order, error) {
	o, err := signing.Parse(req.Op, req.Target, req.TTLMs, grant.Subject)
	if err != nil {
		return signing.Order{}, err
	}
	if o.Kind == op.KindSessionCreate || o.Kind == op.KindSessionDelete {
		return signing.Order{}, protocol.Errorf(protocol.KindUnsupported, "%s goes through POST /commands", o.Kind)
	}
	hash, err := c.Signer.Hash(o)
	if err != nil {
		return signing.Order{}, err
	}
	for _, c := range o.Needs {
		if !grant.Allows(o.Target.SessionID, o.Target.PTYID, c) {
			return signing.Order{}, protocol.Errorf(protocol.KindForbidden, "the grant doesn't allow this")
		}
	}
	session, err := c.Signer.Authorize(ctx, grant.Subject, &o)
	if err != nil {
		return signing.Order{}, err
	}
	if session.Dashboard != grant.Dashboard || session.Sandbox != grant.Sandbox {
		return signing.Order{}, protocol.Errorf(protocol.KindForbidden, "the grant is for another dashboard")
	}
	return signing.Order{
		Operation: o, User: grant.Subject, Key: req.IdempotencyKey, RequestHash: hash, Grant: grant.ID,
		Dashboard: session.Dashboard,
	}, nil
}
