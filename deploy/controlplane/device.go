package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// fromDevice returns the sandbox whose device key signed the whole of r, and
// r's body. The signature is over method, target, body and time: the connection
// it came on says nothing, since a pool of them carries an agent's requests.
func (s *Server) fromDevice(r *http.Request) (protocol.SandboxID, []byte, error) {
	sandbox, device, err := s.certified(r.Context(), r.Header.Get(protocol.CertificateHeader))
	if err != nil {
		return "", nil, err
	}
	body, err := readAll(r)
	if err != nil {
		return "", nil, err
	}
	unsigned := protocol.Errorf(protocol.KindUnauthenticated, "the request is not signed by the certified key")
	at, err := strconv.ParseInt(r.Header.Get(protocol.SignedAtHeader), 10, 64)
	if err != nil {
		return "", nil, unsigned
	}
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(protocol.SignatureHeader))
	if err != nil || len(signature) == 0 {
		return "", nil, unsigned
	}
	transcript := protocol.DeviceTranscript(sandbox, r.Method, r.RequestURI, sha256.Sum256(body), at)
	if !jws.VerifyDevice(device.key, transcript, signature) {
		return "", nil, unsigned
	}
	if age := s.now().Sub(time.UnixMilli(at)); age > protocol.ClockSkew || age < -protocol.ClockSkew {
		return "", nil, protocol.Errorf(protocol.KindExpired, "the request was signed more than %s from now", protocol.ClockSkew)
	}
	return sandbox, body, nil
}

// sessionIn returns an active session of a sandbox. Those of others don't exist
// for it.
func (s *Server) sessionIn(ctx context.Context, sandbox protocol.SandboxID, id protocol.SessionID) (store.Session, error) {
	missing := protocol.Errorf(protocol.KindNotFound, "no such session")
	if !protocol.ValidID(id) {
		return store.Session{}, missing
	}
	session, err := s.store.Sessions.FindSession(ctx, id)
	switch {
	case err != nil:
		return store.Session{}, err
	case session.Sandbox != sandbox || session.State == store.StatePending:
		return store.Session{}, missing
	case session.State == store.StateEnded:
		return store.Session{}, protocol.Errorf(protocol.KindEnded, "session ended")
	}
	return session, nil
}
