package sandboxapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// startRecording is POST …/recording: the result with the recording's id.
func (a *API) startRecording(w http.ResponseWriter, r *http.Request) {
	a.record(w, r, op.KindRecordStart)
}

// stopRecording is DELETE …/recording: the result with the recording's id.
func (a *API) stopRecording(w http.ResponseWriter, r *http.Request) {
	a.record(w, r, op.KindRecordStop)
}

func (a *API) record(w http.ResponseWriter, r *http.Request, kind string) {
	grant, token, err := a.authorize(r, protocol.CapRecord)
	if err != nil {
		a.refuse(w, err)
		return
	}
	result, err := a.change(r, token, op.Op{Kind: kind}, target(r, grant))
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, result)
}
