package approval

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// Routes serves a session's questions and decisions.
func (l *Log) Routes(mux *http.ServeMux) {
	route.GetJSON(mux, "approvals", protocol.CapApprove, func(session protocol.SessionID) any { return l.List(session) })
	route.GetJSON(mux, "egress/pending", protocol.CapApprove, func(session protocol.SessionID) any {
		return map[string][]egressPending{"pending": pending(l.List(session))}
	})
}

// An egressPending is a connection that waits for a decision, in the form of
// seed 001.
type egressPending struct {
	Domain    string         `json:"domain"`
	Port      int            `json:"port"`
	RequestID string         `json:"request_id"` // of the approval
	PTYID     protocol.PTYID `json:"pty_id"`
	Revision  uint64         `json:"revision"`
	LeftMs    int64          `json:"left_ms"`
}

// pending returns the connections of a list that wait for a decision.
func pending(list protocol.ApprovalList) []egressPending {
	waiting := []egressPending{}
	for _, a := range list.Approvals {
		if a.Kind == protocol.ApprovalEgress && a.State == protocol.ApprovalPending {
			waiting = append(waiting, egressPending{a.Host, a.Port, a.ID, a.PTYID, a.Revision, a.LeftMs})
		}
	}
	return waiting
}
