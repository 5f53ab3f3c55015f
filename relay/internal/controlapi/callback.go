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
	// maxReports bounds the callbacks that are being forwarded to the control
	// plane, and reportTimeout each of them.
	maxReports    = 64
	reportTimeout = 10 * time.Second
	// callbacksPerSecond and callbackBurst bound the callbacks from one address.
	callbacksPerSecond = 20
	callbackBurst      = 100
)

// callback takes the outcome of a command from its executor and forwards it to
// the control plane. 204 means that both have it. The executor got the command
// from this relay and shows its token, which strangers lack.
func (a *API) callback(w http.ResponseWriter, r *http.Request) {
	if !a.callbacks.Allow(a.Address(r), time.Now()) {
		a.refuse(w, rejects.Callback, protocol.Errorf(protocol.KindTooMany, "too many callbacks from this address"))
		return
	}
	answer, err := readAnswer(w, r)
	known := false
	if err == nil {
		known, err = a.Dispatcher.Answer(answer)
	}
	if err == nil && !known {
		err = protocol.Errorf(protocol.KindNotFound, "no such command here")
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

// settled takes a page command's callback from the control plane. The command
// was answered, perhaps through another relay, so no page may get it any more.
func (a *API) settled(w http.ResponseWriter, r *http.Request) {
	answer, err := readAnswer(w, r)
	known := false
	if err == nil {
		known, err = a.Dispatcher.Answer(answer)
	}
	if err == nil && !known {
		err = protocol.Errorf(protocol.KindNotFound, "no such command here")
	}
	if err != nil {
		a.refuse(w, rejects.Callback, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readAnswer reads a callback with its token and signature.
func readAnswer(w http.ResponseWriter, r *http.Request) (answer dispatch.Answer, err error) {
	if answer.Token, err = access.Bearer(r); err != nil {
		return answer, err
	}
	if answer.Body, err = access.ReadBody(w, r, maxCallback); err != nil {
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

// wellFormed reports whether c is a possible outcome.
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

// report forwards a callback to the control plane.
func (a *API) report(ctx context.Context, answer dispatch.Answer) error {
	select {
	case a.reports <- struct{}{}:
	default:
		return protocol.Errorf(protocol.KindTooMany, "too many callbacks at once")
	}
	defer func() { <-a.reports }()
	// It continues if the executor hangs up: a service worker may be stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	return a.Signer.Report(ctx, answer)
}
