package commands

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A commandBody is a command and what became of it. What it was told in detail
// is left out, and so is the signed command: both may hold secrets. Result and
// Error are for who may read them alone: see [op.MayReadOutcome].
type commandBody struct {
	ID         protocol.CommandID  `json:"id"`
	Kind       string              `json:"kind"`
	Sandbox    protocol.SandboxID  `json:"sandbox,omitempty"`
	Session    protocol.SessionID  `json:"session,omitempty"`
	PTY        protocol.PTYID      `json:"pty,omitempty"`
	User       protocol.UserID     `json:"user,omitempty"` // absent: the control plane
	Grant      protocol.GrantID    `json:"grant,omitempty"`
	Trace      protocol.TraceID    `json:"trace"`
	IssuedAt   time.Time           `json:"issued_at"`
	TTLMs      int64               `json:"ttlMs"`
	Status     string              `json:"status"`
	Result     json.RawMessage     `json:"result,omitempty"`
	Error      *protocol.ErrorBody `json:"error,omitempty"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
}

func newCommandBody(cmd store.Command, mayRead bool) commandBody {
	env := cmd.Envelope
	body := commandBody{
		ID: env.CommandID, Kind: cmd.Kind,
		Sandbox: env.Target.SandboxID, Session: env.Target.SessionID, PTY: env.Target.PTYID,
		User: cmd.User, Grant: cmd.Grant, Trace: env.TraceID,
		IssuedAt: time.UnixMilli(env.IssuedAt).UTC(), TTLMs: env.TTLMs,
		Status: cmd.Outcome.Status, FinishedAt: web.Time(cmd.FinishedAt),
	}
	if mayRead {
		body.Result, body.Error = cmd.Outcome.Result, cmd.Outcome.Error
	}
	return body
}

// A commandReader is somebody who asks what became of commands.
type commandReader struct {
	boards *store.Boards
	user   protocol.UserID
	caps   map[string][]protocol.Capability // by dashboard, as far as they were asked for
}

func (c *Commands) commandReader(user protocol.UserID) *commandReader {
	return &commandReader{c.Boards, user, make(map[string][]protocol.Capability)}
}

// body returns cmd as the reader may see it.
func (rd *commandReader) body(ctx context.Context, cmd store.Command) (commandBody, error) {
	caps, err := rd.capabilities(ctx, cmd.Dashboard)
	has := func(c protocol.Capability) bool { return slices.Contains(caps, c) }
	return newCommandBody(cmd, op.MayReadOutcome(cmd.Kind, cmd.Envelope.Target, cmd.User, rd.user, has)), err
}

// capabilities returns what the reader may do in a dashboard now, whether or not
// its sessions have ended; nothing in one of others, or in none.
func (rd *commandReader) capabilities(ctx context.Context, dashboard string) ([]protocol.Capability, error) {
	caps, known := rd.caps[dashboard]
	if known || dashboard == "" {
		return caps, nil
	}
	_, as, err := rd.boards.DashboardFor(ctx, rd.user, dashboard)
	switch {
	case err == nil:
		caps = access.Capabilities(as.Role, as.Capabilities)
	case protocol.KindOf(err) != protocol.KindNotFound:
		return nil, err
	}
	rd.caps[dashboard] = caps
	return caps, nil
}

// getCommand tells that there is a command and its status: whoever asked for it,
// and whoever may see its session.
func (c *Commands) getCommand(w *web.Writer, r *http.Request) error {
	user, err := c.Gate.User(w, r)
	if err != nil {
		return err
	}
	id := protocol.CommandID(r.PathValue("id"))
	if !protocol.ValidID(id) {
		return protocol.Errorf(protocol.KindNotFound, "no such command")
	}
	cmd, err := c.Store.Command(r.Context(), id)
	if err != nil {
		return err
	}
	if cmd.User != user.ID {
		if err := c.maySee(r.Context(), user.ID, cmd.Envelope.Target.SessionID); err != nil {
			if protocol.KindOf(err).Status() < http.StatusInternalServerError {
				err = protocol.Errorf(protocol.KindNotFound, "no such command")
			}
			return err
		}
	}
	body, err := c.commandReader(user.ID).body(r.Context(), cmd)
	if err != nil {
		return err
	}
	return w.JSON(http.StatusOK, struct {
		Command commandBody `json:"command"`
	}{body})
}

// maySee fails with KindNotFound for whoever isn't a member of the session's
// dashboard; what happened in a session can be seen after its end, too.
func (c *Commands) maySee(ctx context.Context, user protocol.UserID, id protocol.SessionID) error {
	session, err := c.Sessions.Session(ctx, user, id)
	switch {
	case err != nil && protocol.KindOf(err) == protocol.KindEnded:
		return nil
	case err != nil:
		return err
	case !slices.Contains(access.Capabilities(session.Role, session.MemberCapabilities), protocol.CapView):
		return protocol.Errorf(protocol.KindForbidden, "you don't have the capability %q here", string(protocol.CapView))
	}
	return nil
}

// getCommands lists the commands of a session, or one's own.
func (c *Commands) getCommands(w *web.Writer, r *http.Request) error {
	user, err := c.Gate.User(w, r)
	if err != nil {
		return err
	}
	filter, err := commandFilter(r)
	if err != nil {
		return err
	}
	if filter.Session == "" {
		filter.User = user.ID
	} else if err := c.maySee(r.Context(), user.ID, filter.Session); err != nil {
		return err
	}
	commands, err := c.Store.CommandsOf(r.Context(), filter)
	if err != nil {
		return err
	}
	answer := struct {
		Commands []commandBody `json:"commands"`
	}{[]commandBody{}}
	reader := c.commandReader(user.ID)
	for _, cmd := range commands {
		body, err := reader.body(r.Context(), cmd)
		if err != nil {
			return err
		}
		answer.Commands = append(answer.Commands, body)
	}
	return w.JSON(http.StatusOK, answer)
}

func commandFilter(r *http.Request) (store.CommandFilter, error) {
	q := r.URL.Query()
	f := store.CommandFilter{
		Session: protocol.SessionID(q.Get("session_id")), Before: protocol.CommandID(q.Get("before")),
	}
	if f.Session != "" && !protocol.ValidID(f.Session) {
		return f, protocol.Errorf(protocol.KindInvalid, "session_id is not an id")
	}
	if f.Before != "" && !protocol.ValidID(f.Before) {
		return f, protocol.Errorf(protocol.KindInvalid, "before is not an id")
	}
	var err error
	f.Limit, err = web.Limit(r, store.DefaultLimit, store.MaxLimit)
	return f, err
}
