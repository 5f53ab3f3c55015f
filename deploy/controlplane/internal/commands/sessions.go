package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/signing"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// sessionRequest is the body of POST /sessions, which may be left out.
type sessionRequest struct {
	Dashboard string `json:"dashboard_id"`
	MCPToken  string `json:"mcp_token"` // of seed 001's clients; a sandbox needs none
	op.SessionCreate
}

type sessionAnswer struct {
	ID        protocol.SessionID `json:"id"`
	MachineID protocol.SandboxID `json:"machine_id"`
}

// postSession makes a session in the sandbox of a dashboard: the command
// session.create, for clients of seed 001.
func (c *Commands) postSession(w *web.Writer, r *http.Request) error {
	user, err := c.Gate.User(w, r)
	if err != nil {
		return err
	}
	var req sessionRequest
	if err := web.ReadOptionalBody(r, &req); err != nil {
		return err
	}
	sandbox, err := c.sandboxFor(r.Context(), user.ID, req.Dashboard)
	if err != nil {
		return err
	}
	cmd, err := c.sessionCommand(w, r, user.ID, signing.Target{SandboxID: sandbox}, op.Op{Kind: op.KindSessionCreate, Body: &req.SessionCreate})
	if err != nil {
		return err
	}
	return w.JSON(http.StatusCreated, sessionAnswer{cmd.Envelope.Target.SessionID, sandbox})
}

// deleteSession ends a session with all that runs in it: session.delete.
func (c *Commands) deleteSession(w *web.Writer, r *http.Request) error {
	user, err := c.Gate.User(w, r)
	if err != nil {
		return err
	}
	session := protocol.SessionID(r.PathValue("id"))
	_, err = c.sessionCommand(w, r, user.ID, signing.Target{SessionID: session}, op.Op{Kind: op.KindSessionDelete})
	if err != nil {
		return err
	}
	return w.None()
}

// sessionCommand has do done as POST /commands would. It fails unless the
// sandbox has answered that it is done.
func (c *Commands) sessionCommand(w *web.Writer, r *http.Request, user protocol.UserID, at signing.Target, do op.Op) (cmd store.Command, err error) {
	data, err := json.Marshal(do)
	if err != nil {
		return cmd, err
	}
	r, span := traced(r)
	defer func() { span.End(err) }()
	cmd, err = c.runRequest(w, r, user, Request{Target: at, Op: data}, span)
	if err != nil {
		return cmd, err
	}
	outcome := cmd.Outcome
	switch {
	case outcome.Status == protocol.StatusOK:
		return cmd, nil
	case outcome.Status == protocol.StatusUnknown || outcome.Error == nil:
		return cmd, protocol.Errorf(protocol.KindUnknown, "whether it was done is unknown: GET /commands/%s tells", cmd.Envelope.CommandID)
	case outcome.Status == store.StatusUndelivered && protocol.KindByName(outcome.Error.Name) == protocol.KindInternal:
		return cmd, protocol.Errorf(protocol.KindUnavailable, "%s", outcome.Error.Message)
	}
	return cmd, protocol.Errorf(protocol.KindByName(outcome.Error.Name), "%s", outcome.Error.Message)
}

// sandboxFor returns the sandbox that a new session of user is for: that of the
// dashboard, or, where none is named, of the oldest one in which the user may
// make sessions, their own before others'.
func (c *Commands) sandboxFor(ctx context.Context, user protocol.UserID, dashboard string) (protocol.SandboxID, error) {
	if dashboard != "" {
		d, _, err := c.Boards.DashboardFor(ctx, user, dashboard)
		if err == nil && d.Sandbox == "" {
			err = protocol.Errorf(protocol.KindUnavailable, "the dashboard has no sandbox yet")
		}
		return d.Sandbox, err
	}
	all, err := c.Boards.Dashboards(ctx, user)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(m store.Membership) bool {
		return m.Sandbox == "" || !slices.Contains(access.Capabilities(m.Role, m.Capabilities), protocol.CapAdmin)
	})
	if len(all) == 0 {
		return "", protocol.Errorf(protocol.KindForbidden, "there is no dashboard in which you may make sessions")
	}
	return slices.MinFunc(all, func(a, b store.Membership) int {
		others := func(m store.Membership) int {
			if m.Role == store.RoleOwner {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(others(a), others(b)), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Dashboard.ID, b.Dashboard.ID))
	}).Sandbox, nil
}
