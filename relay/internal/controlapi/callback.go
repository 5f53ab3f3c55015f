package controlapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

const (
	callbackPath = "/control/callback"
	// maxCallback bounds a callback, in bytes: as much as a RESULT may hold.
	maxCallback = protocol.MaxFramePayload
	// maxReports bounds the callbacks on their way to the control plane, which
	// must be asked about each that names a command of elsewhere, and
	// reportTimeout how long one may take.
	maxReports    = 64
	reportTimeout = 10 * time.Second
)

// callback takes the outcome of a command from its executor and passes it on to
// the control plane. 204 means that both have it.
func (a *API) callback(w http.ResponseWriter, r *http.Request) {
	answer, err := readAnswer(w, r)
	if err == nil {
		_, err = a.Dispatcher.Answer(answer)
	}
	if err == nil {
		err = a.report(r.Context(), answer)
	}
	if err != nil {
		a.refuse(w, rejects.Callback, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readAnswer reads a callback and what it is posted with.
func readAnswer(w http.ResponseWriter, r *http.Request) (answer dispatch.Answer, err error) {
	if answer.Token, err = access.Bearer(r); err != nil {
		return answer, err
	}
	if answer.Body, err = readBody(w, r, maxCallback); err != nil {
		return answer, err
	}
	if protocol.UnmarshalObject(answer.Body, &answer.Callback) != nil || !wellFormed(answer.Callback) {
		return answer, protocol.Errorf(protocol.KindInvalid, "the body must be a callback")
	}
	if header := r.Header.Get(protocol.SignatureHeader); header != "" {
		if answer.Signature, err = base64.StdEncoding.DecodeString(header); err != nil {
			return answer, protocol.Errorf(protocol.KindInvalid, "%s must be base64", protocol.SignatureHeader)
		}
	}
	return answer, nil
}

// wellFormed reports whether c can be an outcome.
func wellFormed(c protocol.ExecutionCallback) bool {
	switch c.Status {
	case protocol.StatusOK, protocol.StatusUnknown:
		if c.Error != nil {
			return false
		}
	case protocol.StatusError:
		if c.Error == nil {
			return false
		}
	default:
		return false
	}
	return c.Type == protocol.CallbackType && protocol.ValidID(c.CommandID)
}

// report passes a callback on to the control plane, which also knows the
// commands that others dispatched.
func (a *API) report(ctx context.Context, answer dispatch.Answer) error {
	select {
	case a.reports <- struct{}{}:
	default:
		return protocol.Errorf(protocol.KindTooMany, "too many callbacks at once")
	}
	defer func() { <-a.reports }()
	// It goes on when the executor hangs up: a service worker may be stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	return a.Signer.Report(ctx, answer)
}
