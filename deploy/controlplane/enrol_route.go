package controlplane

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// DefaultCertificateLife is how long a certificate lasts that a sandbox
	// gets over the network.
	DefaultCertificateLife = 24 * time.Hour
	// renewalsPerLife and renewalBurst bound how many certificates of one
	// sandbox are valid at a time, and so what its revocation puts on the list.
	renewalsPerLife = 16
	renewalBurst    = 8
)

// exporterOf returns what binds a signature to the TLS connection of r.
func exporterOf(r *http.Request) ([]byte, error) {
	if r.TLS == nil {
		return nil, protocol.Errorf(protocol.KindForbidden, "this route is for TLS connections")
	}
	return r.TLS.ExportKeyingMaterial(protocol.ExporterLabel, nil, 32)
}

// errInvitation says no more than that: whoever holds a wrong invitation learns
// nothing about right ones.
func errInvitation() error {
	return protocol.Errorf(protocol.KindUnauthenticated, "the invitation is not valid")
}

// postEnrol exchanges an invitation for a certificate, once.
func (s *Server) postEnrol(w http.ResponseWriter, r *http.Request) error {
	var req protocol.EnrolRequest
	if err := readBody(r, &req); err != nil {
		return err
	}
	if !protocol.ValidID(req.SandboxID) {
		return protocol.Errorf(protocol.KindInvalid, "sandbox_id is not an id")
	}
	device, err := parseDevice(req.DeviceKey)
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "device_key: want a public P-256 JWK")
	}
	exporter, err := exporterOf(r)
	if err != nil {
		return err
	}
	if !jws.VerifyDevice(device.key, protocol.EnrolTranscript(req.SandboxID, exporter), req.Signature) {
		return errInvitation()
	}
	reached, err := loadReach(s.enrols.stateDir) // whatever else can fail does so before the invitation is used
	if err != nil {
		return err
	}
	cert, err := certify(s.keys, req.SandboxID, device, s.now(), s.enrols.life)
	if err != nil {
		return err
	}
	err = s.store.Fleet.UseInvitation(r.Context(), req.SandboxID, req.Token, device.thumbprint, device.jwk, s.now())
	if protocol.KindOf(err) == protocol.KindUnauthenticated && err != nil {
		return errInvitation()
	}
	if err != nil {
		return err
	}
	// The invitation is spent: what follows doesn't end with its connection.
	if err := s.addCertificate(context.WithoutCancel(r.Context()), req.SandboxID, device, cert); err != nil {
		return err
	}
	s.logger.Info("sandbox enrolled", "sandbox", req.SandboxID, "device", device.thumbprint, "certificate", cert.ID)
	return s.write(w, http.StatusOK, reached.enrolment(req.SandboxID, cert.token, s.keys.JWKS()))
}

func (s *Server) addCertificate(ctx context.Context, sandbox protocol.SandboxID, device deviceKey, cert certificate) error {
	s.metrics.signed.WithLabelValues(signedCertificate).Inc()
	return s.store.Fleet.AddCertificate(ctx, store.Certificate{
		ID: cert.ID, Sandbox: sandbox, DeviceKey: device.thumbprint, ExpiresAt: cert.Expires(),
	})
}

// postCertificate exchanges a certificate that is still valid for a new one of
// the same key.
func (s *Server) postCertificate(w http.ResponseWriter, r *http.Request) error {
	var req protocol.RenewRequest
	if err := readBody(r, &req); err != nil {
		return err
	}
	exporter, err := exporterOf(r)
	if err != nil {
		return err
	}
	sandbox, device, err := s.certified(r.Context(), req.Certificate)
	if err != nil {
		return err
	}
	if !jws.VerifyDevice(device.key, protocol.RenewTranscript(sandbox, exporter), req.Signature) {
		return protocol.Errorf(protocol.KindUnauthenticated, "the signature is not the certified key's over this connection")
	}
	if !s.enrols.mayRenew(sandbox, s.now()) {
		s.metrics.renewals.Inc()
		return protocol.Errorf(protocol.KindTooMany, "too many renewals")
	}
	reached, err := loadReach(s.enrols.stateDir)
	if err != nil {
		return err
	}
	cert, err := certify(s.keys, sandbox, device, s.now(), s.enrols.life)
	if err != nil {
		return err
	}
	if err := s.addCertificate(r.Context(), sandbox, device, cert); err != nil {
		return err
	}
	s.logger.Info("certificate renewed", "sandbox", sandbox, "certificate", cert.ID)
	return s.write(w, http.StatusOK, reached.enrolment(sandbox, cert.token, s.keys.JWKS()))
}

// certified returns the sandbox and the device key that token certifies, if
// that still holds.
//
// The store decides: a sandbox has one device key, and none once it was
// revoked. So the certificate of a signing key that was revoked serves here as
// well, if it is one that we gave out: otherwise whoever has to revoke a
// signing key would have to invite every sandbox again. At a relay such a
// certificate is worth nothing.
func (s *Server) certified(ctx context.Context, token string) (protocol.SandboxID, deviceKey, error) {
	void := protocol.Errorf(protocol.KindUnauthenticated, "the certificate is not valid")
	if err := s.list.refresh(ctx); err != nil {
		return "", deviceKey{}, err
	}
	cert, err := s.keys.Keys().Certificate(ctx, token)
	if err != nil {
		if cert, err = s.ours(ctx, token, err); err != nil {
			return "", deviceKey{}, err
		}
	}
	device, err := parseDevice(cert.JWK)
	if err != nil {
		return "", device, void
	}
	sandbox, err := s.store.Fleet.Sandbox(ctx, cert.Subject)
	switch {
	case err != nil && protocol.KindOf(err) == protocol.KindNotFound:
		return "", device, void
	case err != nil:
		return "", device, err
	case sandbox.DeviceKey != device.thumbprint: // of a revoked one it is empty
		return "", device, void
	}
	return cert.Subject, device, nil
}

// ours returns the certificate of a signing key that is believed no more, if it
// is one that we gave out. Else it returns the error why.
func (s *Server) ours(ctx context.Context, token string, why error) (*jws.Certificate, error) {
	if !errors.Is(why, jws.ErrUnknownKey) {
		return nil, why
	}
	var cert jws.Certificate
	parts := strings.Split(token, ".") // the token passed the profile, else its key would not be unknown
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || protocol.UnmarshalObject(payload, &cert) != nil {
		return nil, why
	}
	known, err := s.store.Fleet.Certificate(ctx, cert.ID)
	if err != nil {
		if protocol.KindOf(err) == protocol.KindNotFound {
			err = why
		}
		return nil, err
	}
	if known.Sandbox != cert.Subject || !known.RevokedAt.IsZero() {
		return nil, why
	}
	if s.now().After(known.ExpiresAt.Add(protocol.ClockSkew)) {
		return nil, protocol.Errorf(protocol.KindExpired, "certificate: expired")
	}
	return &cert, nil
}

// enrols is what the routes for enrolment share.
type enrols struct {
	// Static after construction.
	stateDir string
	life     time.Duration // of certificates

	mu sync.Mutex
	// Guarded by mu. A sandbox gets here with a valid certificate only.
	renewals map[protocol.SandboxID]*rate.Limiter
}

func newEnrols(stateDir string, life time.Duration) *enrols {
	if life <= 0 {
		life = DefaultCertificateLife
	}
	return &enrols{stateDir: stateDir, life: life, renewals: make(map[protocol.SandboxID]*rate.Limiter)}
}

// mayRenew counts a renewal, unless there were too many.
func (e *enrols) mayRenew(sandbox protocol.SandboxID, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	limiter := e.renewals[sandbox]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(e.life/renewalsPerLife), renewalBurst)
		e.renewals[sandbox] = limiter
	}
	return limiter.AllowN(now, 1)
}
