package notices

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// turnType is the type of the news that a coding agent has finished a turn.
const turnType = "agent.stopped"

// A TurnNews is what a webhook gets of a turn.
type TurnNews struct {
	ID          string              `json:"id"` // the same each time this turn is told of
	Type        string              `json:"type"`
	Agent       string              `json:"agent"`
	Reason      protocol.StopReason `json:"reason"`
	LastMessage string              `json:"last_message,omitempty"`
	SandboxID   protocol.SandboxID  `json:"sandbox_id"`
	DashboardID string              `json:"dashboard_id"`
	SessionID   protocol.SessionID  `json:"session_id"`
	PTYID       protocol.PTYID      `json:"pty_id"`
	At          int64               `json:"at"` // Unix milliseconds, by the sandbox's clock
}

// postPTYCompleted takes a sandbox's word that a coding agent has finished a
// turn. Told again, it is answered alike and goes nowhere.
func (n *Notices) postPTYCompleted(w *web.Writer, r *http.Request) error {
	sandbox, body, err := n.Sandboxes.Request(r)
	if err != nil {
		return err
	}
	var req protocol.PTYCompleted
	if err := protocol.UnmarshalObject(body, &req); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	now := n.Clock.Now()
	if err := checkCompleted(req, now); err != nil {
		return err
	}
	session, err := device.SessionOf(r.Context(), n.Store, sandbox, req.SessionID)
	if err != nil {
		return err
	}
	leave, err := n.Sandboxes.Enter(sandbox)
	if err != nil {
		return err
	}
	defer leave()
	news, err := n.Store.AddTurn(r.Context(), store.Turn{
		Session: req.SessionID, PTY: req.PTYID, Agent: req.Agent, At: time.UnixMilli(req.At),
		Reason: req.Status, LastMessage: req.LastMessage,
	})
	if err == nil && news {
		err = n.tellTurn(sandbox, session.Dashboard, req)
	}
	if err != nil {
		return err
	}
	return w.None()
}

// maxTurnAge is how old a turn may be that is told: the control plane may have
// been away.
const maxTurnAge = 24 * time.Hour

func checkCompleted(c protocol.PTYCompleted, now time.Time) error {
	invalid := func(text string) error { return protocol.Errorf(protocol.KindInvalid, "%s", text) }
	age := now.Sub(time.UnixMilli(c.At))
	switch {
	case !protocol.ValidID(c.PTYID):
		return invalid("pty_id is not an id")
	case c.Agent == "" || len(c.Agent) > protocol.MaxAgentNameBytes:
		return invalid("agent: want a name")
	case !c.Status.Known():
		return invalid("status: unknown reason")
	case len(c.LastMessage) > protocol.MaxLastMessage:
		return invalid("last_message is too long")
	case age > maxTurnAge || age < -protocol.ClockSkew:
		return invalid("at: not a time of the last day")
	}
	return nil
}

// tellTurn passes the news on, if there is somebody to pass it on to.
func (n *Notices) tellTurn(sandbox protocol.SandboxID, dashboard string, c protocol.PTYCompleted) error {
	n.Logger.Info("agent stopped", "agent", c.Agent, "reason", string(c.Status), "sandbox", sandbox, "session", c.SessionID, "pty", c.PTYID)
	if n.Webhook == nil {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "turn %s %s %s %d %s", sandbox, c.SessionID, c.PTYID, c.At, c.Agent))
	news := TurnNews{
		ID: "wh_" + hex.EncodeToString(sum[:16]), Type: turnType, Agent: c.Agent, Reason: c.Status,
		LastMessage: c.LastMessage, SandboxID: sandbox, DashboardID: dashboard, SessionID: c.SessionID, PTYID: c.PTYID, At: c.At,
	}
	data, err := json.Marshal(news)
	if err == nil {
		n.Webhook.Send(news.ID, data)
	}
	return err
}

type turnBody struct {
	Session     protocol.SessionID  `json:"session_id"`
	PTY         protocol.PTYID      `json:"pty_id"`
	Agent       string              `json:"agent"`
	Reason      protocol.StopReason `json:"reason"`
	LastMessage string              `json:"last_message,omitempty"`
	At          time.Time           `json:"at"`
}

// getTurns lists the turns that coding agents have finished in a session, or in
// one of its terminals.
func (n *Notices) getTurns(w *web.Writer, r *http.Request) error {
	m, err := n.People.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	limit, err := web.Limit(r, store.DefaultLimit, store.MaxLimit)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	id, pty := protocol.SessionID(q.Get("session_id")), protocol.PTYID(q.Get("pty_id"))
	if !protocol.ValidID(id) || !web.EmptyOrID(pty) {
		return protocol.Errorf(protocol.KindInvalid, "session_id or pty_id is missing or not an id")
	}
	session, err := n.Store.FindSession(r.Context(), id)
	if err == nil && session.Dashboard != m.Dashboard.ID {
		err = protocol.Errorf(protocol.KindNotFound, "no such session")
	}
	if err != nil {
		return err
	}
	turns, err := n.Store.Turns(r.Context(), id, pty, limit)
	if err != nil {
		return err
	}
	answer := struct {
		Turns []turnBody `json:"turns"`
	}{[]turnBody{}}
	for _, t := range turns {
		answer.Turns = append(answer.Turns, turnBody{t.Session, t.PTY, t.Agent, t.Reason, t.LastMessage, t.At.UTC()})
	}
	return w.JSON(http.StatusOK, answer)
}
