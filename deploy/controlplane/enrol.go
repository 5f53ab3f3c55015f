package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// An EnrolConfig says which sandbox to enrol, and what to tell it.
type EnrolConfig struct {
	StateDir   string // the control plane's
	Sandbox    protocol.SandboxID
	DeviceKey  string // file: the sandbox's public key, a JWK
	CA         string // file: who vouches for the control plane, PEM
	ServerName string // the control plane's name in its certificate
	Relays     []string
	RelayCA    string        // file: who vouches for the relays, PEM
	ValidFor   time.Duration // of the certificate
	Replace    bool          // take another device key than the sandbox has
	Out        string        // file to write

	Now func() time.Time // nil: time.Now
}

// DefaultEnrolmentLife is how long a certificate made by [Enrol] lasts unless
// the caller says otherwise. It can't be renewed but by enrolling again.
const DefaultEnrolmentLife = 90 * 24 * time.Hour

// Enrol certifies a sandbox's device key and writes the enrolment, for its
// owner alone. A sandbox keeps its key: another one is refused.
func Enrol(ctx context.Context, cfg EnrolConfig) error {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	e, thumbprint, err := newEnrolment(cfg)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, filepath.Join(cfg.StateDir, databaseFile))
	if err != nil {
		return err
	}
	err = st.EnrolSandbox(ctx, cfg.Sandbox, thumbprint, cfg.Replace, cfg.Now())
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	return program.ReplaceFile(cfg.Out, append(data, '\n'), privateMode)
}

func newEnrolment(cfg EnrolConfig) (e protocol.Enrolment, thumbprint string, err error) {
	keys, err := openKeys(cfg.StateDir, cfg.Now())
	if err != nil {
		return e, "", err
	}
	e = protocol.Enrolment{
		SandboxID:    cfg.Sandbox,
		ControlPlane: protocol.EnrolledControlPlane{ServerName: cfg.ServerName},
		Relays:       cfg.Relays,
	}
	if e.JWKS, err = keySet(keys); err != nil {
		return e, "", err
	}
	if e.ControlPlane.CAPEM, err = readText(cfg.CA); err != nil {
		return e, "", err
	}
	if e.RelayCAPEM, err = readText(cfg.RelayCA); err != nil {
		return e, "", err
	}
	device, err := readLimited(cfg.DeviceKey, maxKeyBytes)
	if err != nil {
		return e, "", err
	}
	if e.Certificate, thumbprint, err = certify(keys[len(keys)-1].Signer, cfg, device); err != nil {
		return e, "", err
	}
	return e, thumbprint, e.Validate()
}

// certify signs a certificate for the public JWK device, and returns the
// thumbprint of the key too.
func certify(signer *jws.Signer, cfg EnrolConfig, device []byte) (token, thumbprint string, err error) {
	now := cfg.Now()
	cert := jws.Certificate{
		Subject:   cfg.Sandbox,
		JWK:       json.RawMessage(device),
		IssuedAt:  now.Unix(),
		ExpiresAt: now.Add(cfg.ValidFor).Unix(),
		ID:        "crt_" + strings.ToLower(rand.Text()),
	}
	key, err := cert.PublicKey()
	if err != nil {
		return "", "", fmt.Errorf("device key %s: %w", cfg.DeviceKey, err)
	}
	point, err := key.Bytes()
	if err != nil {
		return "", "", fmt.Errorf("device key %s: %w", cfg.DeviceKey, err)
	}
	if token, err = signer.SignCertificate(cert); err != nil {
		return "", "", fmt.Errorf("certificate for %s: %w", cfg.DeviceKey, err)
	}
	digest := sha256.Sum256(point)
	return token, base64.RawURLEncoding.EncodeToString(digest[:]), nil
}

func readText(path string) (string, error) {
	data, err := readLimited(path, protocol.MaxEnrolmentBytes)
	return string(data), err
}
