package sandboxapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// startRecording is POST …/recording: the result with the recording's id.
func (a *API) startRecording(w http.ResponseWriter, r *http.Request) {
	a.record(w, r, protocol.OpRecordStart)
}

// stopRecording is DELETE …/recording: the result with the recording's id.
func (a *API) stopRecording(w http.ResponseWriter, r *http.Request) {
	a.record(w, r, protocol.OpRecordStop)
}

func (a *API) record(w http.ResponseWriter, r *http.Request, op string) {
	grant, token, err := a.authorize(r, protocol.CapRecord)
	if err != nil {
		a.refuse(w, err)
		return
	}
	result, err := a.change(r, token, map[string]string{"kind": op}, target(r, grant))
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, result)
}
