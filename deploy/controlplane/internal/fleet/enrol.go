package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// An EnrolConfig says which sandbox to enrol, and what to tell it.
type EnrolConfig struct {
	statedir.Location // the control plane's

	Sandbox   protocol.SandboxID
	DeviceKey string // file: the sandbox's public key, a JWK
	Reach
	ValidFor time.Duration // of the certificate
	Replace  bool          // take another device key than the sandbox has
	Out      string        // file to write

	Now func() time.Time // nil: time.Now
}

// maxJWKBytes bounds a file with a public key.
const maxJWKBytes = 4 << 10

// DefaultEnrolmentLife is how long a certificate made by [Enrol] lasts unless
// the caller says otherwise.
const DefaultEnrolmentLife = 90 * 24 * time.Hour

// Enrol certifies a sandbox's device key and writes the enrolment, for its
// owner alone. A sandbox keeps its key: another one is refused.
func Enrol(ctx context.Context, cfg EnrolConfig) error {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	reached, err := cfg.read()
	if err != nil {
		return err
	}
	jwk, err := private.ReadPublic(cfg.DeviceKey, maxJWKBytes)
	if err != nil {
		return err
	}
	key, err := device.Parse(jwk)
	if err != nil {
		return fmt.Errorf("device key %s: %w", cfg.DeviceKey, err)
	}
	keys, err := keyring.OpenIn(cfg.StateDir, keyring.Options{Now: cfg.Now})
	if err != nil {
		return err
	}
	cert, err := device.Certify(keys, cfg.Sandbox, key, cfg.Now(), cfg.ValidFor)
	if err != nil {
		return fmt.Errorf("certificate for %s: %w", cfg.DeviceKey, err)
	}
	e := reached.enrolment(cfg.Sandbox, cert.Token, keys.JWKS())
	if err := e.Validate(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	if err := enrolInStore(ctx, cfg, key, cert); err != nil {
		return err
	}
	if err := reached.save(cfg.StateDir); err != nil {
		return err
	}
	return program.ReplaceFile(cfg.Out, append(data, '\n'), private.Mode)
}

func enrolInStore(ctx context.Context, cfg EnrolConfig, key device.Key, cert device.Certificate) error {
	st, err := cfg.OpenStore(ctx, cfg.Now)
	if err != nil {
		return err
	}
	err = st.Fleet.EnrolSandbox(ctx, cfg.Sandbox, key.Thumbprint, key.JWK, cfg.Replace, cfg.Now())
	if err == nil {
		err = st.Fleet.AddCertificate(ctx, store.Certificate{
			ID: cert.ID, Sandbox: cfg.Sandbox, DeviceKey: key.Thumbprint, ExpiresAt: cert.Expires(),
		})
	}
	return errors.Join(err, st.Close())
}
