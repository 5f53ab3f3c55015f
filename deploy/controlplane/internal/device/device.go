// Package device knows sandboxes by their device keys: it certifies the keys, and
// verifies what is signed with them.
package device

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

// A Key is the public key of a sandbox.
type Key struct {
	JWK        json.RawMessage
	Public     *ecdsa.PublicKey
	Thumbprint string // how the store tells keys apart
}

// Parse reads a public P-256 JWK. Errors quote nothing of it, since it
// might be a private one that was given by mistake.
func Parse(jwk []byte) (Key, error) {
	d := Key{JWK: json.RawMessage(jwk)}
	var err error
	if d.Public, err = (&jws.Certificate{JWK: d.JWK}).PublicKey(); err != nil {
		return d, err
	}
	point, err := d.Public.Bytes()
	if err != nil {
		return d, err
	}
	digest := sha256.Sum256(point)
	d.Thumbprint = base64.RawURLEncoding.EncodeToString(digest[:])
	return d, nil
}

// A Certificate is one that was signed just now.
type Certificate struct {
	jws.Certificate
	Token string
}

// Certify signs a certificate for device. The signing key is published until it
// expires.
func Certify(keys *keyring.Ring, sandbox protocol.SandboxID, device Key, now time.Time, life time.Duration) (Certificate, error) {
	c := Certificate{Certificate: jws.Certificate{
		Subject:   sandbox,
		JWK:       device.JWK,
		IssuedAt:  now.Unix(),
		ExpiresAt: now.Add(life).Unix(),
		ID:        "crt_" + strings.ToLower(rand.Text()),
	}}
	signer, err := keys.CertificateSigner(c.Expires())
	if err != nil {
		return c, err
	}
	c.Token, err = signer.SignCertificate(c.Certificate)
	return c, err
}

// VerifyCallback verifies the signature, base64, of a sandbox's executor over the
// exact bytes of its callback, and returns it decoded. A wrong one is
// KindUnauthenticated.
func VerifyCallback(sandbox protocol.SandboxID, jwk, callback []byte, header string) ([]byte, error) {
	wrong := protocol.Errorf(protocol.KindUnauthenticated, "the callback is not signed by the sandbox")
	signature, err := base64.StdEncoding.DecodeString(header)
	if err != nil || len(signature) == 0 || len(jwk) == 0 {
		return nil, wrong
	}
	device, err := Parse(jwk)
	if err != nil {
		return nil, err
	}
	if !jws.VerifyDevice(device.Public, protocol.CallbackTranscript(sandbox, callback), signature) {
		return nil, wrong
	}
	return signature, nil
}
