package services

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
)

// Approvals serves what a session asks for and what was decided about it. List
// and Grant must be set.
type Approvals struct {
	List  func(session protocol.SessionID) protocol.ApprovalList
	Grant func(*http.Request) *jws.Grant // under which a request came, verified
}

// Register adds the routes to mux.
func (s *Approvals) Register(mux *http.ServeMux) {
	serveSession(mux, s.Grant, "approvals", protocol.CapApprove, func(session protocol.SessionID) any {
		return s.List(session)
	})
	serveSession(mux, s.Grant, "egress/pending", protocol.CapApprove, s.pending)
}

// An egressPending is a connection that waits for a decision, as seed 001 tells
// of it.
type egressPending struct {
	Domain    string         `json:"domain"`
	Port      int            `json:"port"`
	RequestID string         `json:"request_id"` // of the approval
	PTYID     protocol.PTYID `json:"pty_id"`
	Revision  uint64         `json:"revision"`
	LeftMs    int64          `json:"left_ms"`
}

// pending is GET /sessions/{sid}/egress/pending.
func (s *Approvals) pending(session protocol.SessionID) any {
	waiting := []egressPending{}
	for _, a := range s.List(session).Approvals {
		if a.Kind == protocol.ApprovalEgress && a.State == protocol.ApprovalPending {
			waiting = append(waiting, egressPending{a.Host, a.Port, a.ID, a.PTYID, a.Revision, a.LeftMs})
		}
	}
	return map[string][]egressPending{"pending": waiting}
}

// serveSession serves GET of a path of each session under grants that carry
// capability for it. What answer returns is sent as JSON.
func serveSession(mux *http.ServeMux, grantOf func(*http.Request) *jws.Grant, path string, capability protocol.Capability, answer func(protocol.SessionID) any) {
	mux.HandleFunc("GET /sessions/{sid}/"+path, func(w http.ResponseWriter, r *http.Request) {
		session := protocol.SessionID(r.PathValue("sid"))
		if grant := grantOf(r); grant == nil || !protocol.ValidID(session) || !grant.Allows(session, "", capability) {
			reply.Error(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", capability))
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		reply.JSON(w, http.StatusOK, answer(session))
	})
}
