package sandboxapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// createPTY is POST /sessions/{sid}/ptys (seed 001): 201 {id}.
func (a *API) createPTY(w http.ResponseWriter, r *http.Request) {
	var body struct {
		CreatorID protocol.UserID `json:"creator_id"` // accepted for seed 001's clients; the grant's user counts
		PTYID     protocol.PTYID  `json:"pty_id"`
		Command   string          `json:"command"`
		Dir       string          `json:"working_dir"`
		Cols      int             `json:"cols"`
		Rows      int             `json:"rows"`
		Record    bool            `json:"record"` // from its first byte; needs the capability record
		Egress    *bool           `json:"egress_enabled"`

		Conversation protocol.ConversationID `json:"conversation"` // goes on in it; needs the capabilities chat and approve
		Shell        *op.Shell               `json:"shell"`        // what it runs, and which id it has

		Spawn    op.Spawn    `json:"spawn"`
		OnDetach op.OnDetach `json:"on_detach"`
	}
	grant, token, err := a.authorize(r, protocol.CapShell)
	if err == nil && r.ContentLength != 0 {
		err = access.ReadJSON(w, r, &body)
	}
	if err == nil && body.PTYID != "" && !protocol.ValidID(body.PTYID) {
		err = protocol.Errorf(protocol.KindInvalid, "pty_id must be an id")
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	create := op.Op{Kind: op.KindPTYCreate, Body: &op.PTYCreate{
		CreatorID: grant.Subject, Command: body.Command, Dir: body.Dir, Cols: body.Cols, Rows: body.Rows,
		Record: body.Record, Egress: body.Egress, Conversation: body.Conversation, Shell: body.Shell,
		Spawn: body.Spawn, OnDetach: body.OnDetach,
	}}
	at := target(r, grant)
	at.PTYID = body.PTYID
	result, err := a.change(r, token, create, at)
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusCreated, map[string]string{"id": string(result.PTYID), "revision": a.Revision})
}

// closePTY is DELETE /sessions/{sid}/ptys/{pid}: 204.
func (a *API) closePTY(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapShell)
	if err != nil {
		a.refuse(w, err)
		return
	}
	_, err = a.change(r, token, op.Op{Kind: op.KindPTYClose}, target(r, grant))
	if err != nil {
		a.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
