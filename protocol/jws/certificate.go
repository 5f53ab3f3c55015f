package jws

import (
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A Certificate binds a key to a sandbox.
type Certificate struct {
	Issuer    string             `json:"iss"`
	Audience  string             `json:"aud"`
	Subject   protocol.SandboxID `json:"sub"`
	JWK       json.RawMessage    `json:"jwk"` // public P-256 key, as [DeviceKey.PublicJWK] gives it
	IssuedAt  int64              `json:"iat"` // Unix seconds
	ExpiresAt int64              `json:"exp"` // Unix seconds
	ID        string             `json:"jti"`

	Kid string `json:"-"` // of a verified certificate: the key that signed it
}

var certificateNames = vocabularyOf(protocol.MemberNames(Certificate{}))

// PublicKey returns the certified key. It can't fail for a verified certificate.
func (c *Certificate) PublicKey() (*ecdsa.PublicKey, error) {
	_, key, err := parsePublicJWK(c.JWK)
	if err != nil {
		return nil, fmt.Errorf("certificate: jwk: %w", err)
	}
	return key, nil
}

// Expires returns c's expiry, without the skew.
func (c *Certificate) Expires() time.Time { return time.Unix(c.ExpiresAt, 0) }

// openCertificate applies steps 8 to 14 of README.md to a token that passed the
// profile.
func openCertificate(t Token, now time.Time) (*Certificate, error) {
	var c Certificate
	if err := openObject(t, TypeCertificate, certificateNames, &c); err != nil {
		return nil, refused("certificate: %s", err)
	}
	if err := c.check(); err != nil {
		return nil, refused("certificate: %s", err)
	}
	if err := checkLife("certificate", c.IssuedAt, c.ExpiresAt, now); err != nil {
		return nil, err
	}
	return &c, nil
}

// check applies the rules that need nothing but the certificate.
func (c *Certificate) check() error {
	switch {
	case !protocol.ValidID(c.Subject):
		return errors.New("sub is not an id")
	case !protocol.ValidID(c.ID):
		return errors.New("jti is not an id")
	}
	if _, _, err := parsePublicJWK(c.JWK); err != nil {
		return fmt.Errorf("jwk: %w", err)
	}
	return checkSpan(c.IssuedAt, c.ExpiresAt, 0)
}
