package controlapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

// revocations takes a revocation list, whose signature is its only credential.
// It only adds to what is revoked.
func (a *API) revocations(w http.ResponseWriter, r *http.Request) {
	body, err := access.ReadBody(w, r, protocol.MaxTokenBytes)
	if err != nil {
		a.refuse(w, rejects.Revocations, err)
		return
	}
	list, err := a.Keys.Revocations(r.Context(), string(body))
	if err != nil {
		a.refuse(w, rejects.Revocations, err)
		return
	}
	if a.Revoked.Apply(list) {
		a.Log.Info("revocations", "number", list.Number, "grants", len(list.Grants), "subjects", len(list.Subjects))
	}
	w.WriteHeader(http.StatusNoContent)
}
