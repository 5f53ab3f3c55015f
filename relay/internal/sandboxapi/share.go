package sandboxapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// share is POST …/share {with}: 200 {with}.
func (a *API) share(w http.ResponseWriter, r *http.Request) {
	var body struct {
		With protocol.Share `json:"with"`
	}
	grant, token, err := a.authorize(r, protocol.CapControl)
	if err == nil {
		err = access.ReadJSON(w, r, &body)
	}
	if err == nil && !body.With.Valid() {
		err = protocol.Errorf(protocol.KindInvalid, "with must be the id of a terminal, %q or %q", protocol.ShareSession, protocol.ShareNone)
	}
	var result protocol.OpResult
	if err == nil {
		sharing := op.Op{Kind: op.KindTerminalShare, Body: &op.TerminalShare{With: body.With}}
		result, err = a.change(r, token, sharing, target(r, grant))
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, protocol.Shared{With: result.With})
}
