package fleet

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
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
func (f *Fleet) postEnrol(w *web.Writer, r *http.Request) error {
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
	reached, err := f.reachNow(r.Context()) // whatever else can fail does so before the invitation is used
	if err != nil {
		return err
	}
	cert, err := device.Certify(f.Keys, req.SandboxID, key, f.Clock.Now(), f.CertificateLife)
	if err != nil {
		return err
	}
	err = f.Store.UseInvitation(r.Context(), req.SandboxID, req.Token, key.Thumbprint, key.JWK, f.Clock.Now())
	if protocol.KindOf(err) == protocol.KindUnauthenticated && err != nil {
		return errInvitation()
	}
	if err != nil {
		return err
	}
	// The invitation is spent: what follows doesn't end with its connection.
	if err := f.addCertificate(context.WithoutCancel(r.Context()), req.SandboxID, key, cert); err != nil {
		return err
	}
	f.Logger.Info("sandbox enrolled", "sandbox", req.SandboxID, "device", key.Thumbprint, "certificate", cert.ID)
	return w.Document(http.StatusOK, reached.enrolment(req.SandboxID, cert.Token, f.Keys.JWKS()))
}

func (f *Fleet) addCertificate(ctx context.Context, sandbox protocol.SandboxID, key device.Key, cert device.Certificate) error {
	f.Metrics.Signed.WithLabelValues(metrics.Certificate).Inc()
	return f.Store.AddCertificate(ctx, store.Certificate{
		ID: cert.ID, Sandbox: sandbox, DeviceKey: key.Thumbprint, ExpiresAt: cert.Expires(),
	})
}

// postCertificate exchanges a certificate that is still valid for a new one of
// the same key.
func (f *Fleet) postCertificate(w *web.Writer, r *http.Request) error {
	var req protocol.RenewRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	exporter, err := exporterOf(r)
	if err != nil {
		return err
	}
	sandbox, key, err := f.Devices.Certified(r.Context(), req.Certificate)
	if err != nil {
		return err
	}
	if !jws.VerifyDevice(key.Public, protocol.RenewTranscript(sandbox, exporter), req.Signature) {
		return protocol.Errorf(protocol.KindUnauthenticated, "the signature is not the certified key's over this connection")
	}
	if !f.renewals.allow(sandbox, f.Clock.Now()) {
		f.Metrics.Renewals.Inc()
		return protocol.Errorf(protocol.KindTooMany, "too many renewals")
	}
	reached, err := f.reachNow(r.Context())
	if err != nil {
		return err
	}
	cert, err := device.Certify(f.Keys, sandbox, key, f.Clock.Now(), f.CertificateLife)
	if err != nil {
		return err
	}
	if err := f.addCertificate(r.Context(), sandbox, key, cert); err != nil {
		return err
	}
	f.Logger.Info("certificate renewed", "sandbox", sandbox, "certificate", cert.ID)
	return w.Document(http.StatusOK, reached.enrolment(sandbox, cert.Token, f.Keys.JWKS()))
}
