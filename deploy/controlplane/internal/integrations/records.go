package integrations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
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
	tabs      Tabs
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

type gatewayRecordBody struct {
	ID            string                   `json:"id"`
	At            time.Time                `json:"at"`
	Session       protocol.SessionID       `json:"session_id"`
	PTY           protocol.PTYID           `json:"pty_id,omitempty"`
	User          protocol.UserID          `json:"user_id,omitempty"` // absent: a program in the sandbox
	Account       string                   `json:"account_id,omitempty"`
	Provider      string                   `json:"provider"`
	Action        string                   `json:"action"`
	Decision      protocol.GatewayDecision `json:"decision"`
	Reason        string                   `json:"reason,omitempty"`
	Outcome       string                   `json:"outcome,omitempty"` // absent: done
	PolicyID      string                   `json:"policy_id,omitempty"`
	PolicyVersion int64                    `json:"policy_version,omitempty"`
}

func newGatewayRecordBody(r store.GatewayRecord) gatewayRecordBody {
	return gatewayRecordBody{
		r.ID, r.At.UTC(), r.Session, r.PTY, r.User, r.Account, r.Provider, r.Action, r.Decision, r.Reason, r.Outcome,
		r.PolicyID, r.PolicyVersion,
	}
}

// listRecords lists what was asked of the gateway in a dashboard.
func (g *gateway) listRecords(w *web.Writer, r *http.Request) error {
	m, err := g.people.Editor(w, r)
	if err != nil {
		return err
	}
	limit, err := web.Limit(r, store.DefaultLimit, store.MaxLimit)
	if err != nil {
		return err
	}
	before := r.URL.Query().Get("before")
	if before != "" && !protocol.ValidID(before) {
		return protocol.Errorf(protocol.KindInvalid, "before is not an id")
	}
	records, err := g.store.GatewayRecords(r.Context(), m.Dashboard.ID, before, limit)
	if err != nil {
		return err
	}
	answer := struct {
		Records []gatewayRecordBody `json:"records"`
	}{[]gatewayRecordBody{}}
	for _, record := range records {
		answer.Records = append(answer.Records, newGatewayRecordBody(record))
	}
	return w.JSON(http.StatusOK, answer)
}
