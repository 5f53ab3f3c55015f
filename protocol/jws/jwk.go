package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// coordinateBytes is the length of a P-256 coordinate, and of a private key.
const coordinateBytes = 32

// A publicJWK is the JSON form of a public key, RFC 7517 and RFC 7518 §6.2.
type publicJWK struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
	Kid string `json:"kid,omitempty"`
	Alg string `json:"alg,omitempty"`
	Use string `json:"use,omitempty"`
}

// A privateJWK is what a key file holds.
type privateJWK struct {
	publicJWK
	D string `json:"d"`
}

func newPublicJWK(key *ecdsa.PublicKey) (publicJWK, error) {
	point, err := key.Bytes() // 4 ‖ x ‖ y
	if err != nil {
		return publicJWK{}, fmt.Errorf("public key: %w", err)
	}
	x, y := point[1:1+coordinateBytes], point[1+coordinateBytes:]
	return publicJWK{
		Kty: "EC", Crv: "P-256",
		X: base64url.EncodeToString(x), Y: base64url.EncodeToString(y),
	}, nil
}

// newSigningJWK is newPublicJWK for a token signing key with a kid.
func newSigningJWK(key *ecdsa.PublicKey, kid string) (publicJWK, error) {
	jwk, err := newPublicJWK(key)
	jwk.Kid, jwk.Alg, jwk.Use = kid, string(algorithm), "sig"
	return jwk, err
}

// privateMembers are the secret JWK members of any key type. A published key
// with one of them is compromised.
var privateMembers = [...]string{"d", "k", "p", "q", "dp", "dq", "qi", "oth", "priv"}

// parsePublicJWK returns the P-256 key in jwk, which must be usable for ES256.
func parsePublicJWK(jwk []byte) (kid string, key *ecdsa.PublicKey, err error) {
	members, err := parseObject(jwk)
	if err != nil {
		return "", nil, err
	}
	for _, name := range privateMembers {
		if _, present := members[name]; present {
			return "", nil, errors.New("private members in a public key")
		}
	}
	key, err = parsePoint(members)
	if err != nil {
		return "", nil, err
	}
	kid, _ = stringMember(members, "kid")
	return kid, key, nil
}

// parsePoint returns the public key of the JWK in members. It refuses a key for
// another use than verifying ES256.
func parsePoint(members map[string]json.RawMessage) (*ecdsa.PublicKey, error) {
	if kty, _ := stringMember(members, "kty"); kty != "EC" {
		return nil, errors.New("kty must be EC")
	}
	if crv, _ := stringMember(members, "crv"); crv != "P-256" {
		return nil, errors.New("crv must be P-256")
	}
	if use, _ := stringMember(members, "use"); members["use"] != nil && use != "sig" {
		return nil, errors.New("use must be sig")
	}
	if alg, _ := stringMember(members, "alg"); members["alg"] != nil && alg != string(algorithm) {
		return nil, errors.New("alg must be ES256")
	}
	if raw := members["key_ops"]; raw != nil && !mayVerify(raw) {
		return nil, errors.New("key_ops must allow verify")
	}
	x, err := scalarMember(members, "x")
	if err != nil {
		return nil, err
	}
	y, err := scalarMember(members, "y")
	if err != nil {
		return nil, err
	}
	point := append(append([]byte{4}, x...), y...)
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, errors.New("the point is not on the curve")
	}
	return key, nil
}

func mayVerify(raw json.RawMessage) bool {
	var ops []string
	if json.Unmarshal(raw, &ops) != nil {
		return false
	}
	for _, op := range ops {
		if op == "verify" {
			return true
		}
	}
	return false
}

// scalarMember decodes a member of exactly 32 bytes, including leading zeros
// (RFC 7518 §6.2.1.2).
func scalarMember(members map[string]json.RawMessage, name string) ([]byte, error) {
	s, _ := stringMember(members, name)
	if len(s) != base64url.EncodedLen(coordinateBytes) {
		return nil, fmt.Errorf("%s must have %d bytes", name, coordinateBytes)
	}
	b, err := base64url.DecodeString(s)
	if err != nil || len(b) != coordinateBytes { // line breaks are skipped in decoding
		return nil, fmt.Errorf("%s is not canonical base64url", name)
	}
	return b, nil
}

// marshalPrivateJWK returns the content of a key file. kid may be empty.
func marshalPrivateJWK(key *ecdsa.PrivateKey, kid string) ([]byte, error) {
	var jwk privateJWK
	var err error
	if kid == "" {
		jwk.publicJWK, err = newPublicJWK(&key.PublicKey)
	} else {
		jwk.publicJWK, err = newSigningJWK(&key.PublicKey, kid)
	}
	if err != nil {
		return nil, err
	}
	d, err := key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	jwk.D = base64url.EncodeToString(d)
	return json.Marshal(jwk)
}

// parsePrivateJWK reads the content of a key file. Errors never quote it.
func parsePrivateJWK(jwk []byte) (kid string, key *ecdsa.PrivateKey, err error) {
	members, err := parseObject(jwk)
	if err != nil {
		return "", nil, err
	}
	public, err := parsePoint(members)
	if err != nil {
		return "", nil, err
	}
	d, err := scalarMember(members, "d")
	if err != nil {
		return "", nil, err
	}
	key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
	if err != nil {
		return "", nil, errors.New("d is out of range")
	}
	if !key.PublicKey.Equal(public) {
		return "", nil, errors.New("d does not belong to x and y")
	}
	kid, _ = stringMember(members, "kid")
	return kid, key, nil
}

// thumbprint returns the RFC 7638 thumbprint of key in base64url.
func thumbprint(key *ecdsa.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: key}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("thumbprint: %w", err)
	}
	return base64url.EncodeToString(sum), nil
}
