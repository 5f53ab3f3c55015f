package sandboxapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
)

// changeTimeout bounds a change, from the request to the sandbox's answer.
const changeTimeout = 30 * time.Second

// target returns what the path names, in the grant's sandbox.
func target(r *http.Request, grant *jws.Grant) protocol.CommandTarget {
	return protocol.CommandTarget{
		SandboxID: grant.Sandbox,
		SessionID: protocol.SessionID(r.PathValue("sid")),
		PTYID:     protocol.PTYID(r.PathValue("pid")),
	}
}

// times bound a change.
type times struct {
	sign time.Duration // the control plane's answer
	all  time.Duration // from the request to the sandbox's answer
}

var (
	changeTimes = times{changeTimeout, changeTimeout}
	// Decisions and secrets: a decision has a deadline, and a secret should be
	// held briefly. So a failure should be reported soon.
	decideTimes = times{4 * time.Second, changeTimeout}
)

// An unsignedError says that the control plane didn't sign.
type unsignedError struct{ err error }

// change has do signed for grant, runs it in the sandbox and returns the
// result. The request's Idempotency-Key makes a retry the same command.
func (a *API) change(r *http.Request, grant string, do op.Op, target protocol.CommandTarget) (protocol.OpResult, error) {
	return a.changeWith(r, grant, do, target, changeTimes)
}

func (a *API) changeWith(r *http.Request, grant string, do op.Op, target protocol.CommandTarget, within times) (result protocol.OpResult, err error) {
	ctx, span := telemetry.Serve(telemetry.Extract(r.Context(), r.Header.Get(telemetry.Header)), r.Pattern)
	defer func() { span.End(err) }()
	ctx, cancel := context.WithTimeout(ctx, within.all)
	defer cancel()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = rand.Text()
	}
	if len(key) > protocol.MaxIDBytes {
		return protocol.OpResult{}, protocol.Errorf(protocol.KindInvalid, "Idempotency-Key is over %d bytes", protocol.MaxIDBytes)
	}
	signing, cancelSigning := context.WithTimeout(ctx, within.sign)
	env, err := a.Signer.Sign(signing, dispatch.SignRequest{Grant: grant, Op: do, Target: target, IdempotencyKey: key})
	cancelSigning()
	if err != nil {
		return protocol.OpResult{}, &unsignedError{err}
	}
	return a.Dispatcher.Run(ctx, env)
}

func (e *unsignedError) Error() string { return e.err.Error() }

func (e *unsignedError) Unwrap() error { return e.err }
