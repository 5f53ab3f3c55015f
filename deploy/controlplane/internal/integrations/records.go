package integrations

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

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
