package controlplane

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
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
func (s *Server) postEnrol(w *web.Writer, r *http.Request) error {
	var req protocol.EnrolRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	if !protocol.ValidID(req.SandboxID) {
		return protocol.Errorf(protocol.KindInvalid, "sandbox_id is not an id")
	}
	key, err := device.Parse(req.DeviceKey)
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "device_key: want a public P-256 JWK")
	}
	exporter, err := exporterOf(r)
	if err != nil {
		return err
	}
	if !jws.VerifyDevice(key.Public, protocol.EnrolTranscript(req.SandboxID, exporter), req.Signature) {
		return errInvitation()
	}
	reached, err := loadReach(s.enrols.stateDir) // whatever else can fail does so before the invitation is used
	if err != nil {
		return err
	}
	cert, err := device.Certify(s.keys, req.SandboxID, key, s.clock.Now(), s.enrols.life)
	if err != nil {
		return err
	}
	err = s.store.Fleet.UseInvitation(r.Context(), req.SandboxID, req.Token, key.Thumbprint, key.JWK, s.clock.Now())
	if protocol.KindOf(err) == protocol.KindUnauthenticated && err != nil {
		return errInvitation()
	}
	if err != nil {
		return err
	}
	// The invitation is spent: what follows doesn't end with its connection.
	if err := s.addCertificate(context.WithoutCancel(r.Context()), req.SandboxID, key, cert); err != nil {
		return err
	}
	s.logger.Info("sandbox enrolled", "sandbox", req.SandboxID, "device", key.Thumbprint, "certificate", cert.ID)
	return w.Document(http.StatusOK, reached.enrolment(req.SandboxID, cert.Token, s.keys.JWKS()))
}

func (s *Server) addCertificate(ctx context.Context, sandbox protocol.SandboxID, key device.Key, cert device.Certificate) error {
	s.metrics.Signed.WithLabelValues(metrics.Certificate).Inc()
	return s.store.Fleet.AddCertificate(ctx, store.Certificate{
		ID: cert.ID, Sandbox: sandbox, DeviceKey: key.Thumbprint, ExpiresAt: cert.Expires(),
	})
}

// postCertificate exchanges a certificate that is still valid for a new one of
// the same key.
func (s *Server) postCertificate(w *web.Writer, r *http.Request) error {
	var req protocol.RenewRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	exporter, err := exporterOf(r)
	if err != nil {
		return err
	}
	sandbox, key, err := s.devices.Certified(r.Context(), req.Certificate)
	if err != nil {
		return err
	}
	if !jws.VerifyDevice(key.Public, protocol.RenewTranscript(sandbox, exporter), req.Signature) {
		return protocol.Errorf(protocol.KindUnauthenticated, "the signature is not the certified key's over this connection")
	}
	if !s.enrols.mayRenew(sandbox, s.clock.Now()) {
		s.metrics.Renewals.Inc()
		return protocol.Errorf(protocol.KindTooMany, "too many renewals")
	}
	reached, err := loadReach(s.enrols.stateDir)
	if err != nil {
		return err
	}
	cert, err := device.Certify(s.keys, sandbox, key, s.clock.Now(), s.enrols.life)
	if err != nil {
		return err
	}
	if err := s.addCertificate(r.Context(), sandbox, key, cert); err != nil {
		return err
	}
	s.logger.Info("certificate renewed", "sandbox", sandbox, "certificate", cert.ID)
	return w.Document(http.StatusOK, reached.enrolment(sandbox, cert.Token, s.keys.JWKS()))
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
