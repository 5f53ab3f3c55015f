// Package signing checks what somebody wants done, and signs it as a command.
package signing

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"log/slog"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// An Order is an operation that its user may have done, about to be signed.
type Order struct {
	Operation
	User        protocol.UserID // empty: the control plane
	Key         string          // idempotency key; empty: none
	RequestHash []byte
	Grant       protocol.GrantID // empty: asked for with the user's own token
	Origin      string           // public, where the executor calls back
	Dashboard   string
	NewSession  string // session.create: the dashboard of the session
}

// A Signer signs commands for who may have them done.
type Signer struct {
	// Static after construction.
	Store      Store
	Sessions   Sessions
	Boards     Boards
	People     People
	Sandboxes  Sandboxes
	Keys       *keyring.Ring
	RequestKey []byte // of the hashes of requests that hold secrets
	Usage      access.Counter
	Metrics    *metrics.Metrics
	Clock      clock.Clock
	Logger     *slog.Logger
}

type (
	// A Store keeps what was signed.
	Store interface {
		AddCommand(ctx context.Context, cmd store.Command) (store.Command, error)
	}
	// Sessions says who may do what in a session.
	Sessions interface {
		Session(ctx context.Context, user protocol.UserID, id protocol.SessionID) (store.Session, error)
	}
	// Boards says who may do what in the dashboard of a sandbox.
	Boards interface {
		DashboardOf(ctx context.Context, user protocol.UserID, sandbox protocol.SandboxID) (store.Dashboard, store.Member, error)
	}
	// People have names.
	People interface {
		User(ctx context.Context, id protocol.UserID) (store.User, error)
	}
)

// Hash identifies what a caller asked for, before anything is filled in. Of
// values that are secret it tells nothing to who doesn't have the key.
func (s *Signer) Hash(o Operation) ([]byte, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if spec, _ := op.Lookup(o.Kind); spec.Conceals() {
		mac := hmac.New(sha256.New, s.RequestKey)
		mac.Write(data)
		return mac.Sum(nil), nil
	}
	h := sha256.Sum256(data)
	return h[:], nil
}

// Authorize checks o against what user may do at this moment, and completes
// its target. For session.create it returns the dashboard that the session
// will belong to.
func (s *Signer) Authorize(ctx context.Context, user protocol.UserID, o *Operation) (store.Session, error) {
	var session store.Session
	var err error
	if o.Kind == op.KindSessionCreate {
		d, as, e := s.Boards.DashboardOf(ctx, user, o.Target.SandboxID)
		session, err = store.Session{
			Dashboard: d.ID, Sandbox: d.Sandbox, Role: as.Role, MemberCapabilities: as.Capabilities,
		}, e
	} else {
		session, err = s.Sessions.Session(ctx, user, o.Target.SessionID)
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
	return session, access.Require(caps, o.Needs...)
}

// Sign makes and stores the command of o. When the user's key stands for a
// command already, it is that one: of several that are made at once, the store
// keeps the first.
//
// The outcome comes back to o.Origin, the public origin that a relay has
// registered with its credential: nobody else can name where it goes.
func (s *Signer) Sign(ctx context.Context, o Order) (cmd store.Command, err error) {
	ctx, span := telemetry.Start(ctx, "sign")
	defer func() { span.End(err) }()
	if o.User == protocol.AgentHolder {
		return store.Command{}, protocol.Errorf(protocol.KindForbidden, "%s is no user's id", o.User)
	}
	if o.NewSession != "" {
		o.Target.SessionID = protocol.NewSessionID()
	}
	values, err := seal(ctx, s.Sandboxes, &o.Operation)
	if err == nil {
		err = s.nameUser(ctx, &o)
	}
	if err != nil {
		return store.Command{}, err
	}
	c := jws.Command{
		Audience:  o.audience(),
		CommandID: protocol.NewCommandID(),
		TraceID:   protocol.NewTraceID(),
		IssuedAt:  s.Clock.Now().UnixMilli(),
		TTLMs:     o.TTLMs,
		Target:    o.Target,
		Op:        o.Op,
		Reply:     &jws.Reply{URL: o.Origin + "/control/callback", CallbackToken: "ct_" + rand.Text()},
		GrantID:   o.Grant,
		UserID:    o.User,
	}
	token, err := signSealed(s.Keys, c, values)
	if err != nil {
		return store.Command{}, err
	}
	cmd, err = s.Store.AddCommand(ctx, store.Command{
		User: o.User, Key: o.Key, RequestHash: o.RequestHash, Kind: o.Kind, Grant: o.Grant,
		NewSession: o.NewSession, CallbackToken: c.Reply.CallbackToken,
		Envelope: protocol.CommandEnvelope{
			Type: protocol.EnvelopeType, CommandID: c.CommandID, TraceID: c.TraceID,
			IssuedAt: c.IssuedAt, TTLMs: c.TTLMs, Target: c.Target, JWS: token,
		},
	})
	if err == nil && cmd.Envelope.CommandID == c.CommandID {
		s.Usage.Count(o.Dashboard, o.User, store.UsageCommands)
		s.Metrics.Signed.WithLabelValues(metrics.Command).Inc()
		s.Logger.Info("command signed", "command", c.CommandID, "trace", c.TraceID, "kind", o.Kind,
			"user", o.User, "session", o.Target.SessionID, "grant", o.Grant)
	}
	return cmd, err
}

// nameUser says in an operation what its user is called, where others see that:
// the creator of a terminal, the sender of a message to a coding agent.
func (s *Signer) nameUser(ctx context.Context, o *Order) error {
	var create op.PTYCreate
	var send op.ChatSend
	var panel op.SidebarSend
	var body op.Body
	var name *string
	switch o.Kind {
	case op.KindPTYCreate:
		body, name = &create, &create.CreatorName
	case op.KindChatSend:
		body, name = &send, &send.SenderName
	case op.KindSidebarSend:
		body, name = &panel, &panel.SenderName
	default:
		return nil
	}
	user, err := s.People.User(ctx, o.User)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(o.Op, body); err != nil {
		return err
	}
	*name = user.Name
	o.Op, err = json.Marshal(op.Op{Kind: o.Kind, Body: body})
	return err
}

// maxKeyLength bounds an idempotency key.
const maxKeyLength = 128

// CheckKey is KindInvalid for what is no idempotency key.
func CheckKey(key string) error {
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
