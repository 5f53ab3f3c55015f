package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A deviceKey is the public key of a sandbox.
type deviceKey struct {
	jwk        json.RawMessage
	key        *ecdsa.PublicKey
	thumbprint string // how the store tells keys apart
}

// parseDevice reads a public P-256 JWK. Errors quote nothing of it, since it
// might be a private one that was given by mistake.
func parseDevice(jwk []byte) (deviceKey, error) {
	d := deviceKey{jwk: json.RawMessage(jwk)}
	var err error
	if d.key, err = (&jws.Certificate{JWK: d.jwk}).PublicKey(); err != nil {
		return d, err
	}
	point, err := d.key.Bytes()
	if err != nil {
		return d, err
	}
	digest := sha256.Sum256(point)
	d.thumbprint = base64.RawURLEncoding.EncodeToString(digest[:])
	return d, nil
}

// A certificate is one that was signed just now.
type certificate struct {
	jws.Certificate
	token string
}

// certify signs a certificate for device. Its key is published until it expires.
func certify(keys *keyring.Ring, sandbox protocol.SandboxID, device deviceKey, now time.Time, life time.Duration) (certificate, error) {
	c := certificate{Certificate: jws.Certificate{
		Subject:   sandbox,
		JWK:       device.jwk,
		IssuedAt:  now.Unix(),
		ExpiresAt: now.Add(life).Unix(),
		ID:        "crt_" + strings.ToLower(rand.Text()),
	}}
	signer, err := keys.CertificateSigner(c.Expires())
	if err != nil {
		return c, err
	}
	c.token, err = signer.SignCertificate(c.Certificate)
	return c, err
}
