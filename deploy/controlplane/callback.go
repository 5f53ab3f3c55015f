package controlplane

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// realmCallback is the token that a command carries for its callback.
const realmCallback = "callback token"

// postCallback takes a callback from the executor itself.
func (s *Server) postCallback(w http.ResponseWriter, r *http.Request) error {
	return s.takeCallback(w, r, bearer(r))
}

// postRelayedCallback takes a callback that a relay got from an executor.
func (s *Server) postRelayedCallback(w http.ResponseWriter, r *http.Request) error {
	if _, err := authenticate(w, r, realmRelay, s.store.Fleet.RelayByCredential); err != nil {
		return err
	}
	return s.takeCallback(w, r, r.Header.Get(protocol.CallbackTokenHeader))
}

// takeCallback takes the callback in r's body, whose bearer is token. The first
// one in time says what became of the command. Those after it, and those that
// come later than issuedAt + ttlMs (seed 003 §5.4), are stored and counted, and
// change nothing: by then others have been told that the outcome is unknown.
func (s *Server) takeCallback(w http.ResponseWriter, r *http.Request, token string) error {
	body, err := readAll(r)
	if err != nil {
		return err
	}
	cb, outcome, err := parseCallback(body)
	if err != nil {
		return err
	}
	known, err := s.store.Commands.CallbackFor(r.Context(), cb.CommandID)
	if err != nil {
		return err
	}
	if token == "" || !known.Answers(token) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realmCallback+`"`)
		return protocol.Errorf(protocol.KindUnauthenticated, "the callback token is not this command's")
	}
	var signature []byte
	if known.Sandbox != "" {
		signature, err = checkExecutor(known.Sandbox, known.DeviceJWK, body, r.Header.Get(protocol.SignatureHeader))
		if err != nil {
			return err
		}
	}
	// What was received is stored even if whoever sent it doesn't wait.
	ctx := context.WithoutCancel(r.Context())
	outcome.Callback, outcome.Signature = body, signature
	if err := s.advance(ctx, cb.CommandID, known, outcome); err != nil {
		return err
	}
	return none(w)
}

// advance stores the outcome, if it is the first and in time, or else that it
// came.
func (s *Server) advance(ctx context.Context, id protocol.CommandID, known store.Callback, outcome store.Outcome) error {
	late := s.now().After(known.ExpiresAt)
	if late || known.Final {
		s.logger.Info("callback noted", "command", id, "late", late)
		return s.store.Commands.RecordCallback(ctx, id, outcome.Callback, outcome.Signature, late)
	}
	cmd, err := s.store.Commands.Command(ctx, id)
	if err != nil {
		return err
	}
	cmd.Outcome = outcome
	return s.finish(ctx, cmd)
}

// parseCallback reads a callback of any command.
func parseCallback(body []byte) (cb protocol.ExecutionCallback, outcome store.Outcome, err error) {
	if err := protocol.UnmarshalObject(body, &cb); err != nil {
		return cb, outcome, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	if !protocol.ValidID(cb.CommandID) {
		return cb, outcome, protocol.Errorf(protocol.KindInvalid, "commandId is not an id")
	}
	outcome, ok := outcomeOf(body, cb.CommandID)
	if !ok {
		return cb, outcome, protocol.Errorf(protocol.KindInvalid, "body: want a callback with a status")
	}
	return cb, outcome, nil
}

// checkExecutor verifies the signature, base64, of a sandbox's executor over
// the exact bytes of its callback.
func checkExecutor(sandbox protocol.SandboxID, jwk, callback []byte, header string) ([]byte, error) {
	wrong := protocol.Errorf(protocol.KindUnauthenticated, "the callback is not signed by the sandbox")
	signature, err := base64.StdEncoding.DecodeString(header)
	if err != nil || len(signature) == 0 || len(jwk) == 0 {
		return nil, wrong
	}
	device, err := parseDevice(jwk)
	if err != nil {
		return nil, err
	}
	if !jws.VerifyDevice(device.key, protocol.CallbackTranscript(sandbox, callback), signature) {
		return nil, wrong
	}
	return signature, nil
}
