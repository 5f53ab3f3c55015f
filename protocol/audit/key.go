package audit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// A Key is a public P-256 key, the required members of its JWK.
type Key struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

const coordinateBytes = 32

// base64url is strict: each byte string has one spelling.
var base64url = base64.RawURLEncoding.Strict()

// ParseKey returns the required members of a public JWK, which must be a P-256
// key.
func ParseKey(jwk []byte) (Key, error) {
	var k Key
	if err := json.Unmarshal(jwk, &k); err != nil {
		return Key{}, errors.New("audit: key: not a JWK")
	}
	if _, err := k.public(); err != nil {
		return Key{}, fmt.Errorf("audit: key: %w", err)
	}
	return k, nil
}

func (k Key) public() (*ecdsa.PublicKey, error) {
	if k.Kty != "EC" || k.Crv != "P-256" {
		return nil, errors.New("not of P-256")
	}
	point := []byte{4}
	for _, text := range []string{k.X, k.Y} {
		n, err := base64url.DecodeString(text)
		if err != nil || len(n) != coordinateBytes || len(text) != base64url.EncodedLen(coordinateBytes) {
			return nil, errors.New("a coordinate is not 32 bytes")
		}
		point = append(point, n...)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, errors.New("the point is not on the curve")
	}
	return key, nil
}

// Thumbprint returns the RFC 7638 thumbprint of k in base64url.
func (k Key) Thumbprint() string {
	// The coordinates need no escaping in JSON.
	text := fmt.Sprintf(`{"crv":"%s","kty":"%s","x":"%s","y":"%s"}`, k.Crv, k.Kty, k.X, k.Y)
	sum := sha256.Sum256([]byte(text))
	return base64url.EncodeToString(sum[:])
}

// verify reports whether signature is key's signature of transcript.
func verify(key *ecdsa.PublicKey, transcript, signature []byte) bool {
	sum := sha256.Sum256(transcript)
	return ecdsa.VerifyASN1(key, sum[:], signature)
}
