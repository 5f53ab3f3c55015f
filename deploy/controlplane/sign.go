package controlplane

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// An order is an operation that its user may have done, about to be signed.
type order struct {
	operation
	user        protocol.UserID
	key         string // idempotency key; empty: none
	requestHash []byte
	grant       protocol.GrantID // empty: asked for with the user's own token
	origin      string           // public, where the executor calls back
	dashboard   string
	newSession  string // session.create: the dashboard of the session
}

// hashOf identifies what a caller asked for, before anything is filled in. Of
// values that are secret it tells nothing to who doesn't have the key.
func (s *Server) hashOf(o operation) ([]byte, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if o.Kind == op.KindEnvApply {
		mac := hmac.New(sha256.New, s.requestKey)
		mac.Write(data)
		return mac.Sum(nil), nil
	}
	h := sha256.Sum256(data)
	return h[:], nil
}

// authorize checks op against what user may do at this moment, and completes
// its target. For session.create it returns the dashboard that the session
// will belong to.
func (s *Server) authorize(ctx context.Context, user protocol.UserID, o *operation) (store.Session, error) {
	var session store.Session
	var err error
	if o.Kind == op.KindSessionCreate {
		d, as, e := s.store.Boards.DashboardOf(ctx, user, o.Target.SandboxID)
		session, err = store.Session{
			Dashboard: d.ID, Sandbox: d.Sandbox, Role: as.Role, MemberCapabilities: as.Capabilities,
		}, e
	} else {
		session, err = s.store.Sessions.Session(ctx, user, o.Target.SessionID)
	}
	if err != nil {
		return session, err
	}
	if named := o.Target.SandboxID; named != "" && named != session.Sandbox {
		return session, protocol.Errorf(protocol.KindNotFound, "no such session in that sandbox")
	}
	o.Target.SandboxID = session.Sandbox
	if o.audience() == jws.AudienceExtension {
		o.Target.SandboxID = "" // a relay takes a command that names one for the sandbox's
	}
	caps := access.Capabilities(session.Role, session.MemberCapabilities)
	for _, c := range o.Needs {
		if !slices.Contains(caps, c) {
			return session, protocol.Errorf(protocol.KindForbidden, "you don't have the capability %q here", string(c))
		}
	}
	return session, nil
}

// sign makes and stores the command of o. When the user's key stands for a
// command already, it is that one: of several that are made at once, the store
// keeps the first.
//
// The outcome comes back to o.origin, the public origin that a relay has
// registered with its credential: nobody else can name where it goes.
func (s *Server) sign(ctx context.Context, o order) (cmd store.Command, err error) {
	ctx, span := telemetry.Start(ctx, "sign")
	defer func() { span.End(err) }()
	if o.user == protocol.AgentHolder {
		return store.Command{}, protocol.Errorf(protocol.KindForbidden, "%s is no user's id", o.user)
	}
	if o.newSession != "" {
		o.Target.SessionID = protocol.NewSessionID()
	}
	values, err := s.seal(ctx, &o.operation)
	if err == nil {
		err = s.nameCreator(ctx, &o)
	}
	if err != nil {
		return store.Command{}, err
	}
	c := jws.Command{
		Audience:  o.audience(),
		CommandID: protocol.NewCommandID(),
		TraceID:   protocol.NewTraceID(),
		IssuedAt:  s.clock.Now().UnixMilli(),
		TTLMs:     o.TTLMs,
		Target:    o.Target,
		Op:        o.Op,
		Reply:     &jws.Reply{URL: o.origin + "/control/callback", CallbackToken: "ct_" + rand.Text()},
		GrantID:   o.grant,
		UserID:    o.user,
	}
	token, err := s.signSealed(c, values)
	if err != nil {
		return store.Command{}, err
	}
	cmd, err = s.store.Commands.AddCommand(ctx, store.Command{
		User: o.user, Key: o.key, RequestHash: o.requestHash, Kind: o.Kind, Grant: o.grant,
		NewSession: o.newSession, CallbackToken: c.Reply.CallbackToken,
		Envelope: protocol.CommandEnvelope{
			Type: protocol.EnvelopeType, CommandID: c.CommandID, TraceID: c.TraceID,
			IssuedAt: c.IssuedAt, TTLMs: c.TTLMs, Target: c.Target, JWS: token,
		},
	})
	if err == nil && cmd.Envelope.CommandID == c.CommandID {
		s.usage.Count(o.dashboard, o.user, store.UsageCommands)
		s.metrics.Signed.WithLabelValues(metrics.Command).Inc()
		s.logger.Info("command signed", "command", c.CommandID, "trace", c.TraceID, "kind", o.Kind,
			"user", o.user, "session", o.Target.SessionID, "grant", o.grant)
	}
	return cmd, err
}

// nameCreator says in pty.create what its user is called.
func (s *Server) nameCreator(ctx context.Context, o *order) error {
	if o.Kind != op.KindPTYCreate {
		return nil
	}
	user, err := s.store.People.User(ctx, o.user)
	if err != nil {
		return err
	}
	var create op.PTYCreate
	if err := json.Unmarshal(o.Op, &create); err != nil {
		return err
	}
	create.CreatorName = user.Name
	o.Op, err = json.Marshal(op.Op{Kind: o.Kind, Body: &create})
	return err
}

type signRequest struct {
	Grant          string          `json:"grant"`
	Op             json.RawMessage `json:"op"`
	Target         target          `json:"target"`
	IdempotencyKey string          `json:"idempotency_key"`
	TTLMs          *int64          `json:"ttlMs"`
}

type signAnswer struct {
	Envelope protocol.CommandEnvelope `json:"envelope"`
}

// postSign signs what a relay was asked to do by the holder of a grant. The
// relay's word counts for nothing beyond that: the grant is verified here, and
// so is what its user may do now.
func (s *Server) postSign(w *web.Writer, r *http.Request) error {
	relay, err := s.gate.Relay(w, r)
	if err != nil {
		return err
	}
	r, span := traced(r)
	err = s.signFor(w, r, relay, span)
	span.End(err)
	return err
}

// signFor signs what the body of r, which is relay's, asks for.
func (s *Server) signFor(w *web.Writer, r *http.Request, relay protocol.RelayID, span telemetry.Span) error {
	var req signRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	if err := checkKey(req.IdempotencyKey); err != nil {
		return err
	}
	if err := s.list.Refresh(r.Context()); err != nil {
		return err
	}
	grant, err := s.keys.Keys().Grant(r.Context(), req.Grant)
	if err == nil && !s.clock.Now().Before(grant.Expires()) { // by the clock that issued it
		err = protocol.Errorf(protocol.KindExpired, "the grant has expired")
	}
	if err != nil {
		if protocol.KindOf(err).Status() == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+access.RealmGrant+`", error="invalid_token"`)
		}
		return err
	}
	o, err := s.orderUnder(r.Context(), grant, req)
	if err != nil {
		return err
	}
	span.Set(telemetry.Operation(o.Kind))
	registered, err := s.store.Fleet.Relay(r.Context(), relay)
	if err != nil {
		return err
	}
	if registered.PublicOrigin == "" {
		return protocol.Errorf(protocol.KindUnavailable, "relay %s has not registered its address", relay)
	}
	o.origin = registered.PublicOrigin
	cmd, err := s.sign(r.Context(), o)
	if err != nil {
		return err
	}
	return w.JSON(http.StatusOK, signAnswer{cmd.Envelope})
}

// orderUnder checks what req asks for against the grant and against what the
// grant's user may do now.
func (s *Server) orderUnder(ctx context.Context, grant *jws.Grant, req signRequest) (order, error) {
	o, err := parseOperation(req.Op, req.Target, req.TTLMs, grant.Subject)
	if err != nil {
		return order{}, err
	}
	if o.Kind == op.KindSessionCreate || o.Kind == op.KindSessionDelete {
		return order{}, protocol.Errorf(protocol.KindUnsupported, "%s goes through POST /commands", o.Kind)
	}
	hash, err := s.hashOf(o)
	if err != nil {
		return order{}, err
	}
	for _, c := range o.Needs {
		if !grant.Allows(o.Target.SessionID, o.Target.PTYID, c) {
			return order{}, protocol.Errorf(protocol.KindForbidden, "the grant doesn't allow this")
		}
	}
	session, err := s.authorize(ctx, grant.Subject, &o)
	if err != nil {
		return order{}, err
	}
	if session.Dashboard != grant.Dashboard || session.Sandbox != grant.Sandbox {
		return order{}, protocol.Errorf(protocol.KindForbidden, "the grant is for another dashboard")
	}
	return order{
		operation: o, user: grant.Subject, key: req.IdempotencyKey, requestHash: hash, grant: grant.ID,
		dashboard: session.Dashboard,
	}, nil
}

// maxKeyLength bounds an idempotency key.
const maxKeyLength = 128

func checkKey(key string) error {
	visible := func(b byte) bool { return '!' <= b && b <= '~' }
	for i := range len(key) {
		if !visible(key[i]) {
			return protocol.Errorf(protocol.KindInvalid, "idempotency key: want visible ASCII characters")
		}
	}
	if key == "" || len(key) > maxKeyLength {
		return protocol.Errorf(protocol.KindInvalid, "idempotency key: want 1 to %d characters", maxKeyLength)
	}
	return nil
}
